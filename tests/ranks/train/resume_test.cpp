// A run that was interrupted and resumed elsewhere has the bits of one that was not.
#include <csignal>

#include "training.h"
#include <gtest/gtest.h>

namespace dtrain::test {
namespace {

constexpr const char* recipe = R"(
model: {name: convnet, channels: [4], hidden: 8, dropout: 0.2}
data:
  train: {kind: glyphs, size: 50}
  validation: {kind: glyphs, size: 20, offset: 50}
  transforms: {crop_padding: 1, flip: true}
batch: {global: 8, micro: 2}
optimizer: {name: adam, lr: 0.01}
train: {epochs: 2}
checkpoint: {every_steps: 3, keep_last: 9}
parallel: {virtual_ranks: 4}
seed: 3
)";

class Resume : public testing::Test {
 protected:
  std::filesystem::path folder(const char* name) const { return folder_.path() / name; }
  TemporaryDirectory folder_;
};

// Stops at a step border as a signal would, then goes on with other ranks.
TEST_F(Resume, StoppedMidEpochAndResumedWithOtherRanks) {
  const TrainingRun whole = train_threads(recipe, 2, folder("whole"));
  for (const auto& [before, after] : {std::pair{1, 3}, {4, 2}, {2, 1}, {3, 4}}) {
    const auto out = folder("cut") += std::to_string(before);
    std::atomic<int> signal = SIGTERM;
    const TrainingRun cut = train_threads(recipe, before, out, {}, {.stop_signal = &signal});
    EXPECT_EQ(cut.result.end, RunEnd::stopped);
    EXPECT_EQ(cut.result.signal, SIGTERM);
    EXPECT_EQ(cut.result.summary.at("steps"), 1);
    const TrainingRun rest = train_threads(recipe, after, out, {}, {.resume = true});
    EXPECT_EQ(rest.result.end, RunEnd::done);
    EXPECT_EQ(rest.digest(), whole.digest()) << before << " then " << after;
    EXPECT_EQ(rest.steps("loss"), whole.steps("loss"));
    EXPECT_EQ(rest.result.summary.at("validation"), whole.result.summary.at("validation"));
    EXPECT_EQ(rest.result.summary.at("samples_seen"), 100);
  }
}

// From an older checkpoint, as after a kill: later steps are made again, and logged once.
TEST_F(Resume, FromAnOlderCheckpoint) {
  const TrainingRun whole = train_threads(recipe, 1, folder("whole"));
  const auto out = folder("killed");
  train_threads(recipe, 1, out);
  for (const int step : {9, 12, 14}) {
    std::filesystem::remove_all(out / "checkpoints" / fmt::format("step-{:08}", step));
  }
  std::filesystem::remove(out / "summary.json");
  const TrainingRun rest = train_threads(recipe, 2, out, {}, {.resume = true});
  EXPECT_EQ(rest.digest(), whole.digest());
  EXPECT_EQ(rest.steps("step"), whole.steps("step"));
  EXPECT_EQ(rest.steps("loss"), whole.steps("loss"));
}

TEST_F(Resume, WithoutACheckpointStartsAtZero) {
  const TrainingRun run = train_threads(recipe, 2, folder("new"), {}, {.resume = true});
  EXPECT_EQ(run.result.end, RunEnd::done);
  EXPECT_EQ(run.result.summary.at("steps"), 14);
}

TEST_F(Resume, FinishedRunHasNothingToDo) {
  const TrainingRun whole = train_threads(recipe, 1, folder("whole"));
  const auto before = std::filesystem::last_write_time(folder("whole") / "summary.json");
  const TrainingRun again = train_threads(recipe, 2, folder("whole"), {}, {.resume = true});
  EXPECT_EQ(again.result.end, RunEnd::nothing);
  EXPECT_EQ(std::filesystem::last_write_time(folder("whole") / "summary.json"), before);
  EXPECT_EQ(again.log.size(), whole.log.size());
}

TEST_F(Resume, RefusesAnotherModelOrBatch) {
  train_threads(recipe, 1, folder("a"), {"train.epochs=1"});
  for (const char* change :
       {"model.hidden=9", "batch.global=16", "seed=4", "optimizer.name=adamw"}) {
    try {
      train_threads(recipe, 1, folder("a"), {change}, {.resume = true});
      FAIL() << change;
    } catch (const ConfigError& error) {
      const std::string key = std::string(change).substr(0, std::string(change).find('='));
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

// More epochs and another rate are what people change on purpose.
TEST_F(Resume, TakesANewRateAndMoreEpochs) {
  train_threads(recipe, 1, folder("a"), {"train.epochs=1"});
  const TrainingRun more =
      train_threads(recipe, 1, folder("a"), {"optimizer.lr=0.001"}, {.resume = true});
  EXPECT_EQ(more.result.summary.at("steps"), 14);
  EXPECT_EQ(more.steps("lr").back(), 0.001);
}

TEST_F(Resume, UsedFolderIsRefusedWithoutAnOption) {
  train_threads(recipe, 1, folder("a"), {"train.epochs=1"});
  EXPECT_THROW(train_threads(recipe, 1, folder("a")), ConfigError);
  const TrainingRun anew =
      train_threads(recipe, 1, folder("a"), {"train.epochs=1"}, {.overwrite = true});
  EXPECT_EQ(anew.result.summary.at("steps"), 7);
}

}  // namespace
}  // namespace dtrain::test
