// What a resumed run may change, and what it may not.
#include <fstream>
#include <string>
#include <vector>

#include "support.h"

#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/parallel/train/resume.h"

namespace dtrain::test {
namespace {

class ResumeRules : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryDirectory();
    const TrainingRun run = train_threads(small_recipe, 1, folder_->path() / "run");
    digest_ = run.digest();
  }
  static void TearDownTestSuite() { delete folder_; }

  static Config config(const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all = overrides;
    all.push_back("output=" + (folder_->path() / "run").string());
    return config_of(small_recipe, all);
  }

  // Resumes into fresh replicas; the state that rank 0 got.
  static std::optional<checkpoint::RunState> resume_with(const Config& config,
                                                         const RunOptions& options,
                                                         const std::string& cpu_isa,
                                                         const std::string& identity,
                                                         int ranks = 1) {
    std::optional<checkpoint::RunState> state;
    run_ranks(ranks, [&](Communicator& comm) {
      const RunPlan plan = make_plan(config, builtin_registry(), ranks, ranks);
      Replica replica(*plan.layout, config.values.optimizer());
      auto mine = resume(comm, config, config.kinds, options, cpu_isa,
                         identity.empty() ? plan.train_data->identity() : identity, replica);
      if (mine) {
        EXPECT_EQ(replica.arena().digest(), digest_);
      }
      if (comm.rank() == 0) state = std::move(mine);
    });
    return state;
  }
  static std::string error(const std::vector<std::string>& overrides) {
    return error_of<ConfigError>(
        [&] { resume_with(config(overrides), {.resume = true}, isa(), ""); });
  }
  static std::string isa() {
    return read_run_state(folder_->path() / "run/checkpoints/step-00000002").cpu_isa();
  }

  static TemporaryDirectory* folder_;
  static std::string digest_;
};
TemporaryDirectory* ResumeRules::folder_ = nullptr;
std::string ResumeRules::digest_;

TEST_F(ResumeRules, AllRanksGetStateAndWeights) {
  for (const int ranks : {1, 3}) {
    const auto state = resume_with(config(), {.resume = true}, isa(), "", ranks);
    ASSERT_TRUE(state.has_value());
    EXPECT_EQ(state->step(), 2);
    EXPECT_EQ(state->batch(), 2);
    EXPECT_EQ(state->samples_seen(), 16);
  }
}

TEST_F(ResumeRules, NothingIsAskedForNothingIsResumed) {
  EXPECT_FALSE(resume_with(config(), {}, isa(), "").has_value());
}

TEST_F(ResumeRules, WithoutACheckpointItStartsAtStepZeroAndSaysSo) {
  const auto empty = folder_->path() / "empty";
  const Config other = config_of(small_recipe, {"output=" + empty.string()});
  const CapturedLog log;
  EXPECT_FALSE(resume_with(other, {.resume = true}, isa(), "", 2).has_value());
  EXPECT_EQ(log.text(), "info: no checkpoint in " + (empty / "checkpoints").string() +
                            ": starting at step 0\n");
}

TEST_F(ResumeRules, ResumeFromMustExist) {
  RunOptions options;
  options.resume_from = (folder_->path() / "nowhere").string();
  const std::string text =
      error_of<CheckpointError>([&] { resume_with(config(), options, isa(), "", 2); });
  EXPECT_TRUE(contains(text, "nowhere")) << text;
}

TEST_F(ResumeRules, WhatGivesTheNumbersTheirMeaningMustStay) {
  struct Change {
    const char* override;
    const char* difference;
  };
  for (const Change& change : {Change{"model.activation=gelu", "model.activation: relu -> gelu"},
                               {"seed=4", "seed: 3 -> 4"},
                               {"data.train.size=23", "data.train.size: 24 -> 23"},
                               {"data.shuffle=false", "data.shuffle: true -> false"},
                               {"batch.global=16", "batch.global: 8 -> 16"},
                               {"optimizer.name=adamw", "optimizer.name: adam -> adamw"}}) {
    EXPECT_EQ(error({change.override}),
              fmt::format("the checkpoint of step 2 was made with another recipe: {}; a resumed "
                          "run must keep it: set it back, or start a new run (--overwrite, or "
                          "init.from to begin with its weights)",
                          change.difference));
  }
}

TEST_F(ResumeRules, OtherChangesAreSaidAndUsed) {
  struct Change {
    const char* override;
    const char* difference;
  };
  for (const Change& change : {Change{"optimizer.lr=0.02", "optimizer.lr: 0.01 -> 0.02"},
                               {"train.clip_norm=1", "train.clip_norm: 0 -> 1"},
                               {"loss.label_smoothing=0.1", "loss.label_smoothing: 0 -> 0.1"},
                               {"schedule.name=cosine", "schedule.name: constant -> cosine"}}) {
    const CapturedLog log;
    EXPECT_EQ(error({change.override}), "");
    EXPECT_TRUE(contains(log.text(),
                         fmt::format("warning: recipe differs from the checkpoint's: {}; going on "
                                     "with the new value\n",
                                     change.difference)))
        << log.text();
  }
}

TEST_F(ResumeRules, ThePlacementIsFree) {
  const CapturedLog log;
  EXPECT_EQ(error({"parallel.cores=3", "data.workers=2", "checkpoint.every_steps=7",
                   "log.every_steps=1", "parallel.bucket_mb=1"}),
            "");
  EXPECT_FALSE(contains(log.text(), "differs")) << log.text();
}

TEST_F(ResumeRules, AnotherInstructionSetChangesTheBits) {
  const std::string text =
      error_of<ConfigError>([&] { resume_with(config(), {.resume = true}, "other", "", 2); });
  EXPECT_EQ(text, fmt::format("cpu_isa: the checkpoint of step 2 was trained with {0}, this "
                              "machine uses other: the bits would differ; resume on a machine of "
                              "the first kind, set cpu_isa: {0} if this one has it, or give up the "
                              "promise with parallel.reduction: fast",
                              isa()));
  const CapturedLog log;
  EXPECT_TRUE(
      resume_with(config({"parallel.reduction=fast"}), {.resume = true}, "other", "").has_value());
  EXPECT_TRUE(contains(log.text(), "this machine uses other: the bits will differ")) << log.text();
}

TEST_F(ResumeRules, OtherDataIsRefused) {
  const std::string text = error_of<ConfigError>(
      [&] { resume_with(config(), {.resume = true}, isa(), "0123456789abcdef"); });
  EXPECT_TRUE(contains(text,
                       "data.train: the data differs from what the checkpoint of step 2 was "
                       "trained on"))
      << text;
  EXPECT_TRUE(contains(text, "now 0123456789abcdef")) << text;
}

}  // namespace
}  // namespace dtrain::test
