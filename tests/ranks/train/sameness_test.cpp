// The recipe fixes the bits, the placement does not: one digest for any number of ranks, lanes and
// loader workers. Ranks are threads here; tests/procs has the same with processes.
#include "training.h"
#include <gtest/gtest.h>

namespace dtrain::test {
namespace {

constexpr const char* mlp = R"(
model: {name: mlp, inputs: 784, hidden: [24], outputs: 10, dropout: 0.1}
data:
  train: {kind: glyphs, size: 150}
  validation: {kind: glyphs, size: 37, offset: 150}
batch: {global: 48, micro: 3}
optimizer: {name: adamw, lr: 0.002, weight_decay: 0.01, decay_norm_and_bias: false}
train: {epochs: 2, clip_norm: 0.5}
parallel: {virtual_ranks: 8}
)";

constexpr const char* convnet = R"(
model: {name: convnet, channels: [4, 8], hidden: 16, dropout: 0.25}
data:
  train: {kind: glyphs, size: 70}
  validation: {kind: glyphs, size: 21, offset: 70}
  transforms: {crop_padding: 2, mean: [0.2], std: [0.3]}
batch: {global: 24, micro: 2}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: true}
schedule: {name: cosine, warmup_steps: 2}
train: {epochs: 2}
parallel: {virtual_ranks: 6}
)";

constexpr const char* gpt = R"(
model: {name: gpt, layers: 2, width: 24, heads: 3, context: 11, vocabulary: 40, dropout: 0.2}
data:
  train: {kind: synthetic, tokens: 11, classes: 40, size: 76}
  validation: {kind: synthetic, tokens: 11, classes: 40, size: 21, offset: 76}
batch: {global: 24, micro: 3}
optimizer: {name: adamw, lr: 0.003, weight_decay: 0.1, decay_norm_and_bias: false}
train: {epochs: 2, clip_norm: 1}
parallel: {virtual_ranks: 8}
)";

struct Case {
  const char* name;
  const char* yaml;
  int most_ranks;
};

class Sameness : public testing::TestWithParam<Case> {
 protected:
  TrainingRun run(int ranks, const std::vector<std::string>& overrides = {}) {
    return train_threads(GetParam().yaml, ranks, folder_.path() / ("run" + std::to_string(runs_++)),
                         overrides);
  }
  TemporaryDirectory folder_;
  int runs_ = 0;
};

TEST_P(Sameness, AnyNumberOfRanksGivesTheSameBits) {
  const TrainingRun one = run(1);
  const std::string last =
      "checkpoints/step-0000000" + std::to_string(one.result.summary["steps"].get<int>());
  for (const int ranks : {2, 3, 4, GetParam().most_ranks}) {
    const TrainingRun many = run(ranks);
    EXPECT_EQ(many.digest(), one.digest()) << ranks << " ranks";
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(text_of(many.folder / last / file) == text_of(one.folder / last / file))
          << file << " with " << ranks << " ranks";
    }
    EXPECT_EQ(many.steps("loss"), one.steps("loss"));
    EXPECT_EQ(many.steps("grad_norm"), one.steps("grad_norm"));
    EXPECT_EQ(many.result.summary["validation"], one.result.summary["validation"]);
  }
}

TEST_P(Sameness, LanesDoNotMatter) {
  const std::string digest = run(1, {"parallel.cores=1"}).digest();
  for (const int cores : {2, 3, 5, 8}) {
    EXPECT_EQ(run(1, {"parallel.cores=" + std::to_string(cores)}).digest(), digest) << cores;
    EXPECT_EQ(run(2, {"parallel.cores=" + std::to_string(cores)}).digest(), digest) << cores;
  }
}

TEST_P(Sameness, LoaderWorkersDoNotMatter) {
  const std::string digest = run(2, {"data.workers=0"}).digest();
  EXPECT_EQ(run(2, {"data.workers=1"}).digest(), digest);
  EXPECT_EQ(run(1, {"data.workers=4"}).digest(), digest);
}

TEST_P(Sameness, BucketsDoNotMatter) {
  const std::string digest = run(2).digest();
  EXPECT_EQ(run(2, {"parallel.bucket_mb=0.002"}).digest(), digest);
}

TEST_P(Sameness, AnotherSeedGivesOtherBits) {
  EXPECT_NE(run(1, {"seed=1"}).digest(), run(1).digest());
}

INSTANTIATE_TEST_SUITE_P(Recipes, Sameness,
                         testing::Values(Case{"mlp", mlp, 8}, Case{"convnet", convnet, 6},
                                         Case{"gpt", gpt, 8}),
                         [](const auto& info) { return info.param.name; });

// `fast` gives the bits up, not the mathematics.
TEST(FastReduction, AgreesWithReproducible) {
  const TemporaryDirectory folder;
  const std::string yaml = std::string(mlp) + "\n";
  const TrainingRun exact = train_threads(yaml, 1, folder.path() / "exact");
  for (const int ranks : {3, 4}) {
    const TrainingRun fast = train_threads(yaml, ranks, folder.path() / std::to_string(ranks),
                                           {"parallel.reduction=fast"});
    EXPECT_NEAR(fast.steps("loss").back() / exact.steps("loss").back(), 1, 1e-5) << ranks;
  }
}

}  // namespace
}  // namespace dtrain::test
