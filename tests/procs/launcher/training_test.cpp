// `dtrain` as a whole: what becomes of a training run when ranks fail, stall or get signals.
#include <fstream>
#include <signal.h>
#include <unistd.h>

#include "program.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dtrain/core/base/clock.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Training : public testing::Test {
 protected:
  Training() {
    std::ofstream(config()) << "output: " << output().string() << R"(
model: {name: mlp, inputs: 16, hidden: [32], outputs: 10}
data: {train: {kind: synthetic, shape: [16], classes: 10, size: 2000}}
batch: {global: 64, micro: 8}
optimizer: {name: sgd, lr: 0.05}
train: {steps: 20}
checkpoint: {every_steps: 4}
parallel: {timeout: 5}
)";
  }
  fs::path config() const { return folder_.path() / "c.yaml"; }
  fs::path output() const { return folder_.path() / "run"; }
  json summary() const { return json::parse(read_file(output() / "summary.json")); }
  // So many steps that a test ends the run, not the run the test.
  std::vector<std::string> endless(int nproc) const {
    return {DTRAIN_PROGRAM, "--nproc", std::to_string(nproc), config(), "train.steps=100000000"};
  }
  // Waits until the log holds a step.
  bool wait_for_steps() const {
    const Deadline deadline(30);
    while (!deadline.passed()) {
      if (fs::exists(output() / "log.jsonl") &&
          read_file(output() / "log.jsonl").find("\"step\":5,") != std::string::npos) {
        return true;
      }
      ::usleep(5000);
    }
    return false;
  }
  TemporaryDirectory folder_;
};

TEST_F(Training, EndsWellAndSaysSo) {
  const Outcome outcome = run_dtrain({"--nproc", "2", config()});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(summary()["status"], "done");
  EXPECT_TRUE(fs::exists(output() / "rank-0.log"));
  EXPECT_TRUE(fs::exists(output() / "rank-1.log"));
  const std::string digest = summary()["weights_digest"];
  EXPECT_EQ(run_dtrain({"--nproc", "2", config()}).code, 2);  // the folder holds a run
  EXPECT_EQ(run_dtrain({"--nproc", "2", config(), "--resume"}).code, 0);
  EXPECT_EQ(run_dtrain({"--nproc", "3", config(), "--overwrite"}).code, 0);
  EXPECT_EQ(summary()["weights_digest"], digest);
  const Outcome evaluated = run_dtrain({"eval", config(), "--nproc", "2"});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
  EXPECT_EQ(json::parse(evaluated.output)["weights_digest"], digest);
}

struct FaultCase {
  const char* name;
  const char* action;
  int code;
  const char* key;  // of `failure`
};

class TrainingFault : public Training, public testing::WithParamInterface<FaultCase> {};

TEST_P(TrainingFault, IsBlamedOnTheRankThatHadIt) {
  const FaultCase& fault = GetParam();
  for (int rank = 0; rank < 4; ++rank) {
    const TimePoint start = Clock::now();
    const Outcome outcome = run_dtrain(
        {"--nproc", "4", config(), "--overwrite"},
        {"DTRAIN_FAULT=rank=" + std::to_string(rank) + ",step=6,action=" + fault.action});
    EXPECT_LT(seconds_since(start), 10);
    EXPECT_EQ(outcome.code, fault.code) << outcome.error;
    const json result = summary();
    EXPECT_EQ(result["status"], "failed");
    EXPECT_EQ(result["failure"]["rank"], rank) << outcome.error;
    EXPECT_EQ(result["failure"]["step"], 6) << outcome.error;
    EXPECT_TRUE(result["failure"].contains(fault.key)) << result["failure"];
    EXPECT_NE(outcome.error.find("error: rank " + std::to_string(rank) + " failed (host "),
              std::string::npos)
        << outcome.error;
    EXPECT_NE(outcome.error.find("stopped because rank"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainingFault,
                         testing::Values(FaultCase{"Throw", "throw", 1, "error"},
                                         FaultCase{"Exit", "exit:7", 7, "exit_code"},
                                         FaultCase{"ExitWithoutError", "exit:0", 1, "exit_code"},
                                         FaultCase{"Crash", "signal:11", 139, "signal"},
                                         FaultCase{"Kill", "signal:9", 137, "signal"},
                                         FaultCase{"Stall", "stall:60", 1, "error"},
                                         FaultCase{"NanGradient", "nan_grad", 1, "error"},
                                         FaultCase{"InfGradient", "inf_grad", 1, "error"}),
                         [](const auto& info) { return info.param.name; });

TEST_F(Training, RestartsFromTheNewestCheckpoint) {
  ASSERT_EQ(run_dtrain({"--nproc", "2", config()}).code, 0);
  const std::string digest = summary()["weights_digest"];
  const Outcome outcome =
      run_dtrain({"--nproc", "2", config(), "--overwrite", "--max-restarts", "2"},
                 {"DTRAIN_FAULT=rank=1,step=10,action=signal:9"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("starting again: attempt 2 of 3"), std::string::npos);
  EXPECT_EQ(summary()["status"], "done");
  EXPECT_FALSE(summary().contains("failure"));
  EXPECT_EQ(summary()["weights_digest"], digest);
}

TEST_F(Training, DoesNotRestartWhatWouldFailAgain) {
  const Outcome outcome = run_dtrain({"--nproc", "2", config(), "--max-restarts", "2"},
                                     {"DTRAIN_FAULT=rank=1,step=6,action=nan_grad"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.error.find("starting again"), std::string::npos) << outcome.error;
}

TEST_F(Training, StopsWithACheckpointOnSignals) {
  for (const auto& [signal, code] : std::vector<std::pair<int, int>>{
           {SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}, {SIGUSR1, 85}}) {
    fs::remove_all(output());
    Program program(endless(3));
    ASSERT_TRUE(wait_for_steps()) << program.error();
    program.signal(signal);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, code) << outcome.error;
    EXPECT_EQ(summary()["status"], "stopped") << outcome.error;
    EXPECT_FALSE(fs::is_empty(output() / "checkpoints"));
  }
}

TEST_F(Training, IsStoppedByASignalToOneRank) {
  Program program(endless(3));
  ASSERT_TRUE(wait_for_steps()) << program.error();
  const std::string pid = std::to_string(program.pid());
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  pid_t rank = 0;
  ASSERT_TRUE(children >> rank >> rank);
  ::kill(rank, SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 143) << outcome.error;
  EXPECT_EQ(summary()["status"], "stopped");
}

TEST_F(Training, KeepsASecondRunOutOfItsFolder) {
  Program program(endless(2));
  ASSERT_TRUE(wait_for_steps()) << program.error();
  for (const char* option : {"--overwrite", "--resume"}) {
    const Outcome outcome = run_dtrain({"--nproc", "2", config(), option});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.error.find("in use by another run"), std::string::npos) << outcome.error;
  }
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().code, 143);
}

TEST_F(Training, LeavesNothingWhenTheLauncherIsKilled) {
  Program program(endless(4));
  ASSERT_TRUE(wait_for_steps()) << program.error();
  const std::string pid = std::to_string(program.pid());
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  std::vector<pid_t> ranks;
  for (pid_t rank = 0; children >> rank;) ranks.push_back(rank);
  EXPECT_EQ(ranks.size(), 4u);
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait().code, 137);
  EXPECT_TRUE(wait_for_end(ranks, 5));
  // And the folder can be used again at once.
  EXPECT_EQ(run_dtrain({"--nproc", "2", config(), "--overwrite"}).code, 0);
}

TEST_F(Training, RefusesFaultsAndPlacementsThatCannotBe) {
  EXPECT_EQ(
      run_dtrain({"--nproc", "2", config()}, {"DTRAIN_FAULT=rank=2,step=1,action=throw"}).code, 2);
  EXPECT_EQ(run_dtrain({"--nproc", "2", config()}, {"DTRAIN_FAULT=nonsense"}).code, 2);
  EXPECT_EQ(run_dtrain({"--nproc", "9", config()}).code, 2);
  EXPECT_EQ(run_dtrain({config(), "--resume-from", "/no/such/checkpoint"}).code, 2);
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(Training, IsPlannedByCheckWithoutARun) {
  const Outcome outcome = run_dtrain({"check", config(), "--nproc", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  for (const char* part : {"fc1.weight", "[32, 16]", "874", "rank 2", "steps in all", "20",
                           "bucket 0", "virtual ranks 2 to 4"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
  EXPECT_FALSE(fs::exists(output()));
}

}  // namespace
}  // namespace dtrain
