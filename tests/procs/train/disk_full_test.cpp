// C051: an output folder on a file system that holds two checkpoints, but not three.
#include "runs.h"
#include <fmt/format.h>

#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// 407,050 parameters and twice as much state: 4.7 MiB each.
constexpr const char* recipe = R"(
model: {name: mlp, inputs: 784, hidden: [512], outputs: 10}
data: {train: {kind: glyphs, size: 64}}
batch: {global: 16, micro: 4}
optimizer: {name: adam, lr: 0.001}
train: {steps: 4}
checkpoint: {every_steps: 1, keep_last: 2}
)";

class DiskFull : public Runs {
 protected:
  void SetUp() override {
    if (Program({"unshare", "-m", "true"}).wait().code != 0) {
      GTEST_SKIP() << "no right to mount a file system";
    }
  }
  // Runs with `megabytes` for the output, and returns a copy of what is left in it.
  RunFiles run_in(int megabytes, const std::vector<std::string>& extra, Outcome& outcome) {
    const fs::path mount = folder_.path() / "mount";
    fs::create_directory(mount);
    std::string script =
        fmt::format("mount -t tmpfs -o size={}m tmpfs {} || exit 99\n", megabytes, mount.string());
    for (const std::string& word : command(recipe, 2, {mount / "run"}, extra)) {
      script += "'" + word + "' ";
    }
    const RunFiles copy = new_output();
    script += fmt::format("\ncode=$?\ncp -r {} {}\nexit $code\n", (mount / "run").string(),
                          copy.folder.string());
    outcome = finish({"unshare", "-m", "sh", "-c", script});
    return copy;
  }
};

TEST_F(DiskFull, StopsWithTheEarlierCheckpointsIntact) {
  Outcome outcome;
  const RunFiles run = run_in(12, {}, outcome);
  EXPECT_EQ(outcome.code, 1) << outcome.error;
  EXPECT_NE(outcome.error.find("No space left on device"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("step-00000003"), std::string::npos) << outcome.error;
  EXPECT_EQ(run.summary().at("status"), "failed");
  EXPECT_EQ(run.summary().at("failure").at("rank"), 0);
  EXPECT_EQ(list_checkpoints(run.checkpoints()), (std::vector<std::int64_t>{1, 2}));
  for (const auto& entry : fs::directory_iterator(run.checkpoints())) {
    verify_checkpoint(entry.path());  // nothing half written is there
  }
}

// Training goes on to its end, but a run without the weights of its last step is not done.
TEST_F(DiskFull, IsAWarningIfAskedFor) {
  Outcome outcome;
  const RunFiles run = run_in(12, {"checkpoint.on_save_error=warn"}, outcome);
  EXPECT_EQ(outcome.code, 1) << outcome.error;
  EXPECT_NE((outcome.output + outcome.error).find("No space left on device"), std::string::npos);
  EXPECT_NE(outcome.error.find("step-00000004: the weights of the last step, 4, were not saved"),
            std::string::npos)
      << outcome.error;
  EXPECT_EQ((outcome.output + outcome.error).find("done at step"), std::string::npos);
  EXPECT_EQ(run.summary().at("status"), "failed");
  EXPECT_EQ(run.summary().at("steps"), 4);
  EXPECT_EQ(run.summary().at("failure").at("rank"), 0);
  EXPECT_EQ(run.each_step("step").size(), 4);
  EXPECT_EQ(list_checkpoints(run.checkpoints()), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(DiskFull, IsNoTroubleWhereOneMoreFits) {
  Outcome outcome;
  const RunFiles run = run_in(16, {}, outcome);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(list_checkpoints(run.checkpoints()), (std::vector<std::int64_t>{3, 4}));
}

}  // namespace
}  // namespace dtrain
