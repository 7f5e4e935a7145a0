// SIGKILL at any moment of a run that saves at every step.
#include <random>
#include <signal.h>
#include <unistd.h>

#include "runs.h"
#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class RandomKills : public Runs {
 protected:
  static std::int64_t newest_step(const RunFiles& run) {
    const auto newest = find_newest_checkpoint(run.checkpoints());
    return newest ? read_run_state(*newest).step() : 0;
  }
};

TEST_F(RandomKills, NeverLoseTheNewestCheckpoint) {
  constexpr int kills = 50;
  const std::string yaml = R"(
model: {name: mlp, inputs: 64, hidden: [64], outputs: 10, dropout: 0.1}
data: {train: {kind: synthetic, shape: [64], classes: 10, size: 500}}
batch: {global: 32, micro: 4}
optimizer: {name: adam, lr: 0.001}
checkpoint: {every_steps: 1, keep_last: 2}
parallel: {virtual_ranks: 4}
train: {steps: 1000000}
)";
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto uniform = [&](int first, int last) {
    return std::uniform_int_distribution<int>(first, last)(random);
  };
  const RunFiles run = new_output();
  std::int64_t expected = 0;  // step that the next attempt must go on from
  int resumes = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const int nproc = uniform(1, 3);
    const std::size_t before = run.events("resume").size() + run.events("start").size();
    Program program = start(command(yaml, nproc, run, {"--resume"}));
    // Half of the kills come at any moment since the start, half while it trains and saves.
    if (uniform(0, 1) == 1) {
      ASSERT_TRUE(wait_for_step(run, expected + 1)) << program.error();
    }
    ::usleep(static_cast<useconds_t>(uniform(50, 300)) * 1000);
    const std::int64_t newest = newest_step(run);
    EXPECT_GE(newest, expected);
    // The launcher or one of its ranks, of those that there are already.
    pid_t victim = program.pid();
    const std::vector<pid_t> pids = processes_marked(mark_);
    if (!pids.empty() && uniform(0, 1) == 1) {
      victim = pids[static_cast<std::size_t>(uniform(0, static_cast<int>(pids.size()) - 1))];
    }
    ::kill(victim, SIGKILL);
    EXPECT_EQ(program.wait().code, 137) << program.error();
    ASSERT_TRUE(wait_until_gone(10));

    const auto resumed = run.events("resume");
    const std::size_t after = resumed.size() + run.events("start").size();
    if (after > before && !resumed.empty()) {
      ++resumes;
      EXPECT_EQ(resumed.back().at("step"), expected) << "kill " << kill;
    }
    expected = newest_step(run);
    EXPECT_GE(expected, newest) << "kill " << kill;
  }
  EXPECT_GT(resumes, kills / 4);
  EXPECT_GT(expected, kills / 4);

  const std::string steps = fmt::format("train.steps={}", expected + 3);
  train_in(run, yaml, 2, {"--resume", steps});
  const RunFiles undisturbed = train(yaml, 2, {"checkpoint.every_steps=0", steps});
  expect_same_bits(run, undisturbed, fmt::format("{} kills, {} steps", kills, expected + 3));
  EXPECT_EQ(run.each_step("loss"), undisturbed.each_step("loss"));
  EXPECT_EQ(run.each_step("step").size(), static_cast<std::size_t>(expected + 3));
  for (const auto& entry : fs::directory_iterator(run.checkpoints())) {
    EXPECT_TRUE(step_of_checkpoint_name(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace dtrain
