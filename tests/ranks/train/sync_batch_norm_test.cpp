// SyncBN: a batch cut over virtual ranks trains as the whole batch in one does.
#include <cmath>

#include "training.h"
#include <gtest/gtest.h>

namespace dtrain::test {
namespace {

constexpr const char* resnet18 = R"(
model: {name: resnet, depth: 18, stem: cifar, classes: 4, sync_batch_norm: true}
data: {train: {kind: synthetic, shape: [16, 16, 3], classes: 4, size: 32}}
batch: {global: 16, micro: 4}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
train: {steps: 2}
checkpoint: {every_steps: 0}
convolution: direct
)";

// The same recipe would give other bits with another V; the mathematics is one.
TEST(SyncBatchNorm, IsTheWholeBatchInOneVirtualRank) {
  const TemporaryDirectory folder;
  const TrainingRun whole =
      train_threads(resnet18, 1, folder.path() / "whole",
                    {"batch.micro=16", "parallel.virtual_ranks=1", "model.sync_batch_norm=false"});
  const TrainingRun pooled =
      train_threads(resnet18, 2, folder.path() / "pooled", {"parallel.virtual_ranks=4"});
  const TrainingRun apart =
      train_threads(resnet18, 1, folder.path() / "apart",
                    {"parallel.virtual_ranks=4", "model.sync_batch_norm=false"});
  for (const char* field : {"loss", "grad_norm"}) {
    const auto expected = whole.steps(field), found = pooled.steps(field);
    ASSERT_EQ(found.size(), 2U);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i] / expected[i], 1, 1e-5) << field << " of step " << i + 1;
    }
    EXPECT_GT(std::abs(apart.steps(field)[0] / expected[0] - 1), 1e-4) << field;
  }
}

}  // namespace
}  // namespace dtrain::test
