// Signals: a run stops at the step border with a checkpoint, and goes on to the same bits.
#include <fstream>
#include <memory>
#include <signal.h>
#include <unistd.h>

#include "runs.h"
#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace {

// Steps take some milliseconds, so that a signal lands in the middle.
constexpr const char* recipe = R"(
model: {name: mlp, inputs: 784, hidden: [64], outputs: 10, dropout: 0.1}
data: {train: {kind: glyphs, size: 300}}
batch: {global: 64, micro: 8}
optimizer: {name: adamw, lr: 0.001}
train: {steps: 1000000}
checkpoint: {every_steps: 0, keep_last: 100}
)";

class Stop : public Runs {
 protected:
  // Sends the signal to the launcher, or to one rank, after a few steps.
  void stop(const RunFiles& run, int signal, int code, int rank = -1) {
    Program program = start(command(recipe, 3, run));
    ASSERT_TRUE(wait_for_step(run, 5)) << program.error();
    pid_t target = program.pid();
    if (rank >= 0) {
      for (const pid_t pid : processes_marked(mark_)) {
        if (is_rank(pid, rank)) target = pid;
      }
      ASSERT_NE(target, program.pid());
    }
    const TimePoint sent = Clock::now();
    ::kill(target, signal);
    const Outcome outcome = program.wait();
    EXPECT_LT(seconds_since(sent), 10);
    EXPECT_EQ(outcome.code, code) << outcome.error;
    EXPECT_EQ(run.summary().at("status"), "stopped");
    EXPECT_FALSE(run.summary().contains("failure"));
    EXPECT_EQ(outcome.error.find("failed"), std::string::npos) << outcome.error;
    // The checkpoint is that of the last step made.
    EXPECT_EQ(list_checkpoints(run.checkpoints()), std::vector<std::int64_t>{run.steps()});
    EXPECT_EQ(run.each_step("step").back(), static_cast<double>(run.steps()));
    EXPECT_EQ(leftovers_.found(temporary_), "");
  }
  static bool is_rank(pid_t pid, int rank) {
    std::ifstream file(fmt::format("/proc/{}/environ", pid));
    for (std::string variable; std::getline(file, variable, '\0');) {
      if (variable == fmt::format("RANK={}", rank)) return true;
    }
    return false;
  }
  void expect_to_go_on(const RunFiles& run) {
    const std::string steps = fmt::format("train.steps={}", run.steps() + 4);
    train_in(run, recipe, 2, {"--resume", steps});
    const RunFiles undisturbed = train(recipe, 1, {steps});
    expect_same_bits(run, undisturbed, "stopped and resumed");
    EXPECT_EQ(run.each_step("loss"), undisturbed.each_step("loss"));
  }
};

struct SignalCase {
  const char* name;
  int signal;
  int code;
};

void PrintTo(const SignalCase& value, std::ostream* out) {
  *out << value.name;
}

class StopBySignal : public Stop, public testing::WithParamInterface<SignalCase> {};

TEST_P(StopBySignal, ToTheLauncherLeavesACheckpointToGoOnFrom) {
  const RunFiles run = new_output();
  stop(run, GetParam().signal, GetParam().code);
  if (!HasFailure()) expect_to_go_on(run);
}

INSTANTIATE_TEST_SUITE_P(All, StopBySignal,
                         testing::Values(SignalCase{"Term", SIGTERM, 143},
                                         SignalCase{"Interrupt", SIGINT, 130},
                                         SignalCase{"Hangup", SIGHUP, 129},
                                         SignalCase{"Requeue", SIGUSR1, 85}),
                         [](const auto& info) { return info.param.name; });

TEST_F(Stop, ASignalToOneRankStopsAll) {
  const RunFiles run = new_output();
  stop(run, SIGTERM, 143, 2);
  if (!HasFailure()) expect_to_go_on(run);
  const RunFiles requeued = new_output();
  stop(requeued, SIGUSR1, 85, 1);
}

TEST_F(Stop, ARankThatDoesNotStopIsNamedAndEnded) {
  const RunFiles run = new_output();
  Program program = start(command(recipe, 2, run, {"parallel.stop_grace=0.5"}));
  ASSERT_TRUE(wait_for_step(run, 5)) << program.error();
  for (const pid_t pid : processes_marked(mark_)) {
    if (is_rank(pid, 1)) ::kill(pid, SIGSTOP);
  }
  ::kill(program.pid(), SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 143) << outcome.error;
  // Rank 0 may wait for rank 1, or be done.
  EXPECT_NE(outcome.error.find("1 did not stop within 0.5 s: ended with SIGKILL"),
            std::string::npos)
      << outcome.error;
  EXPECT_EQ(run.summary().at("status"), "stopped");
  EXPECT_EQ(leftovers_.found(temporary_), "");
}

TEST_F(Stop, ASecondSignalEndsAllRanksAtOnce) {
  const RunFiles run = new_output();
  Program program = start(command(recipe, 2, run));
  ASSERT_TRUE(wait_for_step(run, 5)) << program.error();
  for (const pid_t pid : processes_marked(mark_)) {
    if (is_rank(pid, 1)) ::kill(pid, SIGSTOP);
  }
  ::kill(program.pid(), SIGINT);
  while (program.error().find("stopping all ranks") == std::string::npos) ::usleep(1000);
  ::kill(program.pid(), SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 130) << outcome.error;
  EXPECT_NE(outcome.error.find("signal 15 (SIGTERM): ended all ranks at once"), std::string::npos)
      << outcome.error;
  EXPECT_EQ(leftovers_.found(temporary_), "");
}

TEST_F(Stop, MaxTimeStopsWithACheckpointToo) {
  const RunFiles run = new_output();
  const Outcome outcome = finish(command(recipe, 2, run, {"train.max_time=0.5"}));
  EXPECT_EQ(outcome.code, 85) << outcome.error;
  EXPECT_EQ(run.summary().at("status"), "stopped");
  EXPECT_EQ(list_checkpoints(run.checkpoints()), std::vector<std::int64_t>{run.steps()});
  expect_to_go_on(run);
}

TEST_F(Stop, AKilledLauncherTakesItsRanksAlong) {
  const RunFiles run = new_output();
  Program program = start(command(recipe, 4, run, {"data.workers=2"}));
  ASSERT_TRUE(wait_for_step(run, 5)) << program.error();
  EXPECT_EQ(processes_marked(mark_).size(), 5);
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait().code, 137);
  EXPECT_TRUE(wait_until_gone(5));
  EXPECT_EQ(leftovers_.found(temporary_), "");
}

// Whoever watches over the launcher starts it again at once, while the ranks are still dying.
TEST_F(Stop, AKilledLauncherCanBeStartedAgainAtOnce) {
  const RunFiles run = new_output();
  for (int i = 0; i < 5; ++i) {
    Program program = start(command(recipe, 4, run, {"--resume", "checkpoint.every_steps=2"}));
    ASSERT_TRUE(wait_for_step(run, 5 * (i + 1))) << program.error();
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait().code, 137);
  }
  const Outcome outcome = finish(command(recipe, 4, run, {"--resume", "train.max_time=0.1"}));
  EXPECT_EQ(outcome.code, 85) << outcome.error;
  expect_to_go_on(run);
}

TEST_F(Stop, RestartsMakeTheBitsOfAnUndisturbedRun) {
  const std::vector<std::string> extra = {"train.steps=12", "checkpoint.every_steps=3"};
  const RunFiles undisturbed = train(recipe, 1, extra);
  for (const char* action : {"signal:9", "throw", "exit:7"}) {
    const RunFiles run = new_output();
    std::vector<std::string> arguments = command(recipe, 3, run, extra);
    arguments.insert(arguments.end(), {"--max-restarts", "1"});
    const Outcome outcome =
        finish(arguments, {fmt::format("DTRAIN_FAULT=rank=1,step=8,action={}", action)});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_EQ(run.summary().at("status"), "done");
    expect_same_bits(run, undisturbed, action);
    EXPECT_EQ(run.each_step("loss"), undisturbed.each_step("loss"));
    EXPECT_EQ(run.events("resume").size() + run.events("start").size(), 2) << action;
  }
  // Two failures are one too many.
  const RunFiles run = new_output();
  std::vector<std::string> arguments = command(recipe, 2, run, {"train.steps=12"});
  arguments.insert(arguments.end(), {"--max-restarts", "1", "output=/dev/null/none"});
  EXPECT_EQ(finish(arguments).code, 2);
}

TEST_F(Stop, OneRunAtATimeInAFolder) {
  const RunFiles run = new_output();
  Program program = start(command(recipe, 2, run));
  ASSERT_TRUE(wait_for_step(run, 2)) << program.error();
  for (const char* option : {"--overwrite", "--resume", "log.every_steps=5"}) {
    const Outcome second = finish(command(recipe, 2, run, {option}));
    EXPECT_EQ(second.code, 2) << option;
    EXPECT_NE(second.error.find(run.folder.string()), std::string::npos) << second.error;
  }
  program.signal(SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 143) << outcome.error;
  EXPECT_EQ(run.events("start").size(), 1);
  EXPECT_EQ(run.each_step("step").size(), static_cast<std::size_t>(run.steps()));
}

// C003: no fixed port or name: runs in different folders do not see each other.
TEST_F(Stop, RunsAtTheSameTimeDoNotMeet) {
  std::vector<RunFiles> runs;
  std::vector<std::unique_ptr<Program>> programs;
  const std::vector<std::string> extra = {"train.steps=5"};
  for (int i = 0; i < 6; ++i) {
    runs.push_back(new_output());
    const auto arguments = command(recipe, 2, runs.back(), extra);
    programs.push_back(std::make_unique<Program>(
        arguments, std::vector<std::string>{mark_, "TMPDIR=" + temporary_.string()}));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Outcome outcome = programs[i]->wait();
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_EQ(runs[i].digest(), runs[0].digest());
  }
}

}  // namespace
}  // namespace dtrain
