// The recipe fixes the bits, the placement does not: processes, modes, loader workers, and runs
// that are killed and go on elsewhere.
#include <cmath>
#include <signal.h>

#include "runs.h"

namespace dtrain {
namespace {

// 150 samples in batches of 48, cut into 8 virtual ranks of two micro-batches: the last is short.
constexpr const char* mlp_adamw = R"(
model: {name: mlp, inputs: 784, hidden: [24], outputs: 10, dropout: 0.1}
data:
  train: {kind: glyphs, size: 150}
  validation: {kind: glyphs, size: 37, offset: 150}
batch: {global: 48, micro: 3}
optimizer: {name: adamw, lr: 0.002, weight_decay: 0.01, decay_norm_and_bias: false}
train: {epochs: 3, clip_norm: 0.5}
checkpoint: {every_steps: 2}
parallel: {virtual_ranks: 8}
)";

constexpr const char* mlp_sgd = R"(
model: {name: mlp, inputs: 784, hidden: [32, 16], outputs: 10}
data: {train: {kind: glyphs, size: 256}}
batch: {global: 64, micro: 8}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 1e-4}
schedule: {name: cosine, warmup_steps: 2}
train: {epochs: 3}
checkpoint: {every_steps: 2}
)";

constexpr const char* convnet_adamw = R"(
model: {name: convnet, channels: [4, 8], hidden: 16, dropout: 0.25}
data:
  train: {kind: glyphs, size: 120}
  validation: {kind: glyphs, size: 21, offset: 120}
  transforms: {crop_padding: 2, mean: [0.2], std: [0.3]}
batch: {global: 32, micro: 4}
optimizer: {name: adamw, lr: 0.004, weight_decay: 0.01}
train: {epochs: 3, clip_norm: 1}
checkpoint: {every_steps: 2}
)";

constexpr const char* convnet_six = R"(
model: {name: convnet, channels: [4, 8], hidden: 16, dropout: 0.25}
data:
  train: {kind: glyphs, size: 76}
  validation: {kind: glyphs, size: 21, offset: 76}
  transforms: {crop_padding: 2, mean: [0.2], std: [0.3]}
batch: {global: 24, micro: 2}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 3}
checkpoint: {every_steps: 2}
parallel: {virtual_ranks: 6}
)";

constexpr const char* gpt_adamw = R"(
model: {name: gpt, layers: 2, width: 24, heads: 3, context: 11, vocabulary: 40, dropout: 0}
data:
  train: {kind: synthetic, tokens: 11, classes: 40, size: 76}
  validation: {kind: synthetic, tokens: 11, classes: 40, size: 21, offset: 76}
batch: {global: 24, micro: 3}
optimizer: {name: adamw, lr: 0.003, weight_decay: 0.1, decay_norm_and_bias: false}
train: {epochs: 3, clip_norm: 1}
checkpoint: {every_steps: 2}
parallel: {virtual_ranks: 8}
)";

constexpr const char* gpt_dropout = R"(
model: {name: gpt, layers: 2, width: 24, heads: 3, context: 11, vocabulary: 40, dropout: 0.2}
data:
  train: {kind: synthetic, tokens: 11, classes: 40, size: 76}
  validation: {kind: synthetic, tokens: 11, classes: 40, size: 21, offset: 76}
batch: {global: 24, micro: 2}
optimizer: {name: adamw, lr: 0.003, weight_decay: 0.1, decay_norm_and_bias: false}
train: {epochs: 3, clip_norm: 1}
checkpoint: {every_steps: 2}
parallel: {virtual_ranks: 6, threads_per_virtual_rank: 2}
)";

struct Recipe {
  const char* name;
  const char* yaml;
  int virtual_ranks;
};

void PrintTo(const Recipe& value, std::ostream* out) {
  *out << value.name;
}

class Sameness : public Runs, public testing::WithParamInterface<Recipe> {
 protected:
  std::string yaml() const { return GetParam().yaml; }
  // Ends in step 8 of 12 or so, in the middle of an epoch.
  static std::string fault(int rank, const std::string& action) {
    return "DTRAIN_FAULT=rank=" + std::to_string(rank) + ",step=8,action=" + action;
  }
};

TEST_P(Sameness, AnyPlacementGivesTheSameBits) {
  const RunFiles single = train(yaml(), 1, {"parallel.mode=single", "data.workers=0"});
  for (const int nproc : {1, 2, 3, 4, GetParam().virtual_ranks}) {
    const RunFiles run = train(yaml(), nproc);
    const std::string what = std::to_string(nproc) + " processes";
    expect_same_bits(run, single, what);
    EXPECT_EQ(run.summary().at("world_size"), nproc);
    EXPECT_EQ(run.each_step("loss"), single.each_step("loss")) << what;
    EXPECT_EQ(run.each_step("grad_norm"), single.each_step("grad_norm")) << what;
    EXPECT_EQ(run.summary().at("validation"), single.summary().at("validation")) << what;
    EXPECT_EQ(run.summary().at("samples_seen"), single.summary().at("samples_seen")) << what;
  }
  expect_same_bits(train(yaml(), 2, {"data.workers=0"}), single, "no worker");
  expect_same_bits(train(yaml(), 2, {"data.workers=4", "parallel.cores=3"}), single, "4 workers");
  expect_same_bits(train(yaml(), 1, {"data.workers=4", "parallel.cores=4"}), single, "4 cores");
  EXPECT_NE(train(yaml(), 2, {"seed=1"}).digest(), single.digest());
}

TEST_P(Sameness, ARankThatWasKilledChangesNoBit) {
  const RunFiles undisturbed = train(yaml(), 1);
  for (const auto& [before, after] : std::vector<std::pair<int, int>>{{2, 3}, {4, 1}, {3, 2}}) {
    const RunFiles run = new_output();
    const std::string what = std::to_string(before) + " -> " + std::to_string(after);
    const Outcome killed = finish(command(yaml(), before, run), {fault(before - 1, "signal:9")});
    EXPECT_EQ(killed.code, 137) << killed.error;
    train_in(run, yaml(), after, {"--resume"});
    expect_same_bits(run, undisturbed, what);
    // The log tells each step once, whatever was done twice.
    EXPECT_EQ(run.each_step("step"), undisturbed.each_step("step")) << what;
    EXPECT_EQ(run.each_step("loss"), undisturbed.each_step("loss")) << what;
    EXPECT_EQ(run.summary().at("samples_seen"), undisturbed.summary().at("samples_seen"));
  }
}

TEST_P(Sameness, ALauncherThatWasKilledChangesNoBit) {
  const RunFiles undisturbed = train(yaml(), 2);
  const RunFiles run = new_output();
  // Killed where it stalls in step 8, and again, with other processes, in step 11.
  Program first = start(command(yaml(), 3, run), {fault(1, "stall:60")});
  ASSERT_TRUE(wait_for_step(run, 6, true)) << first.error();
  ASSERT_TRUE(wait_for_step(run, 7)) << first.error();
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().code, 137);
  EXPECT_TRUE(wait_until_gone(5));
  Program second =
      start(command(yaml(), 1, run, {"--resume"}), {"DTRAIN_FAULT=rank=0,step=11,action=stall:60"});
  ASSERT_TRUE(wait_for_step(run, 10, true)) << second.error();
  second.signal(SIGKILL);
  EXPECT_EQ(second.wait().code, 137);
  EXPECT_TRUE(wait_until_gone(5));
  train_in(run, yaml(), 4, {"--resume"});
  EXPECT_EQ(run.events("resume").back().at("step"), 10);
  expect_same_bits(run, undisturbed, "launcher killed twice");
  EXPECT_EQ(run.each_step("loss"), undisturbed.each_step("loss"));
}

INSTANTIATE_TEST_SUITE_P(Recipes, Sameness,
                         testing::Values(Recipe{"MlpAdamw", mlp_adamw, 8},
                                         Recipe{"MlpSgd", mlp_sgd, 8},
                                         Recipe{"ConvnetAdamw", convnet_adamw, 8},
                                         Recipe{"ConvnetSixVirtualRanks", convnet_six, 6},
                                         Recipe{"Gpt", gpt_adamw, 8},
                                         Recipe{"GptDropoutTwoThreads", gpt_dropout, 6}),
                         [](const auto& info) { return info.param.name; });

// `fast` gives the bits up, not the mathematics.
TEST_F(Runs, FastReductionAgreesWithinRounding) {
  struct Bound {
    std::string yaml;
    double relative;
  };
  for (const Bound& bound : {Bound{mlp_sgd, 1e-5}, Bound{convnet_adamw, 1e-3}}) {
    const std::vector<std::string> steps = {"train.steps=50", "checkpoint.every_steps=0"};
    std::string yaml = bound.yaml;
    const RunFiles exact = train(yaml, 1, steps);
    for (const int nproc : {3, 4}) {
      std::vector<std::string> extra = steps;
      extra.push_back("parallel.reduction=fast");
      const RunFiles fast = train(yaml, nproc, extra);
      const auto expected = exact.each_step("loss"), found = fast.each_step("loss");
      ASSERT_EQ(expected.size(), 50);
      ASSERT_EQ(found.size(), 50);
      EXPECT_NEAR(found.back() / expected.back(), 1, bound.relative) << nproc;
    }
  }
}

}  // namespace
}  // namespace dtrain
