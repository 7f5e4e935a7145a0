// ResNet-18, also with SyncBN: the same bits for any placement, and no rank that waits for ever.
#include <chrono>

#include "runs.h"

namespace dtrain {
namespace {

// Every second batch is short: two virtual ranks have samples, six have none.
constexpr const char* resnet18 = R"(
model: {name: resnet, depth: 18, stem: cifar, classes: 4}
data: {train: {kind: synthetic, shape: [8, 8, 3], classes: 4, size: 20}}
batch: {global: 16, micro: 2}
optimizer: {name: sgd, lr: 0.02, momentum: 0.9}
train: {steps: 3}
checkpoint: {every_steps: 2}
parallel: {virtual_ranks: 8, cores: 1}
)";

class ResnetRuns : public Runs, public testing::WithParamInterface<bool> {
 protected:
  RunFiles train_resnet(int nproc, std::vector<std::string> extra = {}) {
    extra.push_back(sync());
    return train(resnet18, nproc, extra);
  }
  static std::string sync() {
    return std::string("model.sync_batch_norm=") + (GetParam() ? "true" : "false");
  }
};

TEST_P(ResnetRuns, AnyPlacementGivesTheSameBits) {
  const RunFiles one = train_resnet(1);
  for (const int nproc : {2, 3, 4, 8}) {
    const RunFiles run = train_resnet(nproc);
    const std::string what = std::to_string(nproc) + " processes";
    expect_same_bits(run, one, what);
    EXPECT_EQ(run.each_step("loss"), one.each_step("loss")) << what;
    EXPECT_EQ(run.each_step("grad_norm"), one.each_step("grad_norm")) << what;
    std::filesystem::remove_all(run.folder);  // 90 MB each
  }
  for (const int nproc : {1, 2}) {
    const RunFiles run = train_resnet(nproc, {"parallel.cores=2"});
    expect_same_bits(run, one, std::to_string(nproc) + " processes of 2 cores");
    std::filesystem::remove_all(run.folder);
  }
  const RunFiles resumed = train_resnet(3, {"train.steps=2"});
  train_in(resumed, resnet18, 4, {"--resume", sync()});
  expect_same_bits(resumed, one, "resumed");
}

INSTANTIATE_TEST_SUITE_P(BatchNorm, ResnetRuns, testing::Values(false, true), [](const auto& info) {
  return info.param ? "Synchronized" : "OfEachRank";
});

// A rank that dies while others wait for it inside a pass.
TEST_F(Runs, ARankThatDiesLeavesNobodyWaitingInAPass) {
  for (const char* action : {"signal:9", "throw"}) {
    const RunFiles run = new_output();
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome =
        finish(command(resnet18, 4, run, {"model.sync_batch_norm=true", "train.steps=4"}),
               {std::string("DTRAIN_FAULT=rank=2,step=3,action=") + action});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_NE(outcome.code, 0) << action;
    EXPECT_LT(seconds, 30) << action;
    EXPECT_EQ(run.summary().at("failure").at("rank"), 2) << action << outcome.error;
  }
}

}  // namespace
}  // namespace dtrain
