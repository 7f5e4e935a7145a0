// What ranks must have in common, and how a difference is told.
#include "dtrain/parallel/train/agree.h"

#include <mutex>
#include <string>
#include <vector>

#include "support.h"

#include "dtrain/core/nn/layers.h"

namespace dtrain::test {
namespace {

// Texts that the ranks throw, one per rank; empty where one did not throw.
template <typename E>
std::vector<std::string> errors(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] = error_of<E>([&] { body(comm); });
  });
  return all;
}

TEST(Agree, SameFactsPass) {
  EXPECT_EQ(errors<ConfigError>(3,
                                [](Communicator& comm) {
                                  agree(comm, {{"a", "1", "x"}, {"b", "", "y"}});
                                }),
            std::vector<std::string>(3));
}

TEST(Agree, ADifferenceIsToldOnAllRanks) {
  const std::string expected =
      "ranks differ in instruction set: rank 0 has avx2, rank 2 has avx512; set cpu_isa";
  EXPECT_EQ(errors<ConfigError>(4,
                                [](Communicator& comm) {
                                  agree(comm, {{"version", "1", "x"},
                                               {"instruction set",
                                                comm.rank() < 2 ? "avx2" : "avx512", "set cpu_isa"},
                                               {"more", std::to_string(comm.rank()), "y"}});
                                }),
            std::vector<std::string>(4, expected));
}

using Size = std::pair<std::string, std::pair<int, int>>;  // name, inputs, outputs

class Layers final : public Module {
 public:
  explicit Layers(const std::vector<Size>& layers, bool norm = false) {
    for (const auto& [name, size] : layers) add<Linear>(name, size.first, size.second, false);
    if (norm) add<BatchNorm>("norm", 2);
  }
  Value forward(Pass&, const Value& x) const override { return x; }
};

std::vector<std::string> model_errors(int ranks,
                                      const std::function<std::unique_ptr<Module>(int)>& make) {
  return errors<ConfigError>(ranks, [&](Communicator& comm) {
    const std::unique_ptr<Module> model = make(comm.rank());
    agree_on_model(comm, ArenaLayout(*model));
  });
}

TEST(AgreeOnModel, NamesTheParameterAndTheShapes) {
  const std::string end = "; all ranks must have the same model";
  const auto with = [](const std::vector<Size>& layers,
                       bool norm = false) -> std::unique_ptr<Module> {
    return std::make_unique<Layers>(layers, norm);
  };
  EXPECT_EQ(model_errors(2,
                         [&](int) {
                           return with({{"fc", {32, 10}}}, true);
                         }),
            std::vector<std::string>(2));
  // C073.
  EXPECT_EQ(model_errors(2,
                         [&](int r) {
                           return with({{"fc", {32, r == 1 ? 12 : 10}}});
                         }),
            std::vector<std::string>(2, "fc.weight: rank 0 [10, 32], rank 1 [12, 32]" + end));
  EXPECT_EQ(
      model_errors(
          3,
          [&](int r) {
            return r == 2 ? with({{"fc", {3, 2}}, {"frozen", {2, 2}}}) : with({{"fc", {3, 2}}});
          }),
      std::vector<std::string>(3, "frozen.weight: rank 0 does not have it, rank 2 [2, 2]" + end));
  EXPECT_EQ(model_errors(2,
                         [&](int r) {
                           return with({{"fc", {3, 2}}}, r == 0);
                         }),
            std::vector<std::string>(2, "norm.bias: rank 0 [2], rank 1 does not have it" + end));
  EXPECT_EQ(
      model_errors(2,
                   [&](int r) {
                     return r == 0 ? with({{"a", {3, 2}}, {"b", {3, 2}}})
                                   : with({{"b", {3, 2}}, {"a", {3, 2}}});
                   }),
      std::vector<std::string>(2, "ranks 0 and 1 have the same parameters in different order"));
}

TEST(CheckSameWeights, NamesTensorsAndRank) {
  const auto with_change = [](const std::function<void(int, ParameterArena&)>& change) {
    return errors<InternalError>(3, [&](Communicator& comm) {
      Layers model({{"a", {3, 2}}, {"b", {3, 2}}}, true);
      const ArenaLayout layout(model);
      ParameterArena arena(layout);
      initialize(arena, RandomKey(1));
      change(comm.rank(), arena);
      check_same_weights(comm, arena);
    });
  };
  EXPECT_EQ(with_change([](int, ParameterArena&) {}), std::vector<std::string>(3));
  const auto message = [](int rank, const std::string& names) {
    return std::vector<std::string>(
        3, fmt::format("check_sync: the weights of rank {} differ from those of rank 0 in {}; "
                       "suspect the memory or the processor of one of the two hosts; go on from "
                       "the last checkpoint with --resume",
                       rank, names));
  };
  const auto parameter = [](ParameterArena& arena, const std::string& name) -> std::span<float> {
    for (const Parameter* p : arena.layout().parameters()) {
      if (p->name == name) return arena.weight(*p);
    }
    return {};
  };
  EXPECT_EQ(with_change([&](int rank, ParameterArena& arena) {
              if (rank == 2) parameter(arena, "b.weight")[5] += 1e-7F;
            }),
            message(2, "b.weight"));
  EXPECT_EQ(with_change([&](int rank, ParameterArena& arena) {
              if (rank != 1) return;
              parameter(arena, "norm.weight")[0] = 2;
              arena.buffer(*arena.layout().buffers()[1])[1] = 2;
            }),
            message(1, "norm.running_var, norm.weight"));
  // Zeros of two signs are equal as numbers, not as bits.
  EXPECT_EQ(with_change([&](int rank, ParameterArena& arena) {
              if (rank == 0) parameter(arena, "norm.bias")[1] = -0.0F;
            }),
            message(1, "norm.bias"));
}

}  // namespace
}  // namespace dtrain::test
