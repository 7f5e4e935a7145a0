// Recipes whose weights, losses and rates are known exactly, through the command line.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runs.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/checkpoint/safetensors.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// y = w x with x = 1 and w = 0 at first.
class ExactValues : public Runs {
 protected:
  std::string recipe(const std::vector<double>& targets, const std::string& rest) {
    std::string points = "x,t\n";
    for (const double t : targets) points += fmt::format("1,{}\n", t);
    points_ = write(fmt::format("points-{}.csv", files_++), points);
    return "model: {name: mlp, inputs: 1, hidden: [], outputs: 1, bias: false, init: zeros}\n"
           "loss: mse\n"
           "data: {train: {kind: csv, path: " +
           points_.string() + ", features: [x], targets: [t]}, shuffle: false}\n" + rest;
  }
  fs::path points_;  // of the last recipe
  int files_ = 0;
};

const std::vector<double> one_to_eight = {1, 2, 3, 4, 5, 6, 7, 8};

// C010: the gradient is -9, the first loss 25.5 and w = 0.9 after one step, however it is cut.
TEST_F(ExactValues, AccumulationIsTheSameAsALargeBatch) {
  struct Cut {
    int nproc, micro, accumulate;
  };
  for (const Cut cut :
       {Cut{1, 8, 1}, {1, 1, 8}, {2, 4, 1}, {2, 2, 2}, {2, 1, 4}, {4, 1, 2}, {4, 2, 1}}) {
    const RunFiles run =
        train(recipe(one_to_eight, fmt::format(R"(
batch: {{micro: {}, accumulate: {}}}
optimizer: {{lr: 0.1}}
parallel: {{virtual_ranks: {}}}
)",
                                               cut.micro, cut.accumulate, cut.nproc)),
              cut.nproc);
    EXPECT_NEAR(run.weight(), 0.9F, 1e-6F) << cut.nproc << " " << cut.micro;
    EXPECT_EQ(run.each_step("loss"), std::vector<double>{25.5});
    EXPECT_EQ(run.each_step("grad_norm"), std::vector<double>{9});
    EXPECT_EQ(run.summary().at("samples_seen"), 8);
  }
}

// C011: shares of 3 and 2 samples; the loss is that of all five, in every epoch, for training and
// validation, in the log, the summary and on the console.
TEST_F(ExactValues, LossIsThatOfAllSamples) {
  std::string yaml = recipe({1, 3, 1, 3, 1},
                            "batch: {global: 6, micro: 3}\noptimizer: {lr: 0}\n"
                            "parallel: {virtual_ranks: 2}\ntrain: {epochs: 5}\n"
                            "log: {every_steps: 1}\n");
  const std::string section =
      "{kind: csv, path: " + points_.string() + ", features: [x], targets: [t]}";
  for (const int nproc : {1, 2}) {
    const RunFiles run = new_output();
    const Outcome outcome = finish(command(yaml, nproc, run, {"data.validation=" + section}));
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_EQ(run.each_step("loss"), std::vector<double>(5, 4.2));
    for (const char* kind : {"epoch", "evaluation"}) {
      const auto events = run.events(kind);
      ASSERT_EQ(events.size(), 5) << kind;
      for (const json& event : events) {
        EXPECT_EQ(event.at("loss"), 4.2) << kind;
        EXPECT_EQ(event.at("samples"), 5) << kind;
      }
    }
    EXPECT_EQ(run.summary().at("validation").at("loss"), 4.2);
    EXPECT_EQ(run.summary().at("best").at("loss"), 4.2);
    const std::string console = outcome.output + outcome.error;
    for (const char* text : {"loss 4.2", "evaluation at step 5 | loss 4.200000 | 5 samples"}) {
      EXPECT_NE(console.find(text), std::string::npos) << console;
    }
  }
}

// C023: the rate counts optimizer steps, not micro-batches or processes.
TEST_F(ExactValues, ScheduleCountsOptimizerSteps) {
  for (const int nproc : {1, 2, 4}) {
    const RunFiles run = train(recipe(std::vector<double>(64, 1), fmt::format(R"(
batch: {{micro: 4, accumulate: {}}}
optimizer: {{lr: 0.4}}
schedule: linear
parallel: {{virtual_ranks: {}}}
)",
                                                                              4 / nproc, nproc)),
                               nproc);
    const std::vector<double> rates = run.each_step("lr");
    ASSERT_EQ(rates.size(), 4);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(rates[i], 0.4 - 0.1 * i, 1e-12);
    EXPECT_EQ(run.events("start").at(0).at("steps"), 4);
  }
}

// C038: 7 samples, 4 and 3: every sample weighs the same, and nobody waits.
TEST_F(ExactValues, UnevenInputsAreWeightedBySample) {
  const std::string yaml = recipe({0, 0, 0, 0, 0, 0, 7}, R"(
batch: {global: 8, micro: 4}
optimizer: {lr: 0.1}
parallel: {virtual_ranks: 2}
)");
  for (const int nproc : {1, 2}) {
    const RunFiles run = train(yaml, nproc);
    EXPECT_NEAR(run.weight(), 0.2F, 1e-7F);
    EXPECT_EQ(run.summary().at("samples_seen"), 7);
  }
}

// C040: the last, short window is neither dropped nor divided by the full one.
TEST_F(ExactValues, ShortLastWindow) {
  const std::string rest = R"(
batch: {micro: 1, accumulate: 4}
optimizer: {lr: 0.1}
parallel: {virtual_ranks: 1}
checkpoint: {every_steps: 1, keep_last: 9}
)";
  const RunFiles one = train(recipe({1, 2, 3, 4, 5, 6, 7}, rest), 1);
  EXPECT_EQ(one.steps(), 2);
  EXPECT_NEAR(one.weight(1), 0.5F, 1e-6F);
  EXPECT_NEAR(one.weight(2), 1.6F, 1e-6F);
  // The next epoch starts from a zero gradient: step 3 moves by 2 * 0.1 * (2.5 - w).
  const RunFiles two = train(recipe({1, 2, 3, 4, 5, 6, 7}, rest + "train: {epochs: 2}\n"), 1);
  const double third = 1.6 + 0.2 * (2.5 - 1.6);
  EXPECT_NEAR(two.weight(3), third, 1e-6);
  EXPECT_NEAR(two.weight(4), third + 0.2 * (6 - third), 1e-6);
  EXPECT_NEAR(train(recipe({1, 2, 3}, rest), 1).weight(1), 0.4F, 1e-6F);
}

// C042: the norm reported is the global one before clipping, the update is the clipped one.
TEST_F(ExactValues, ClippingUsesTheGlobalNorm) {
  for (const int nproc : {1, 2}) {
    for (const int accumulate : {1, 2}) {
      const RunFiles run = train(recipe(one_to_eight, fmt::format(R"(
batch: {{global: 8, accumulate: {}}}
optimizer: {{lr: 0.1}}
parallel: {{virtual_ranks: 2}}
train: {{clip_norm: 1}}
)",
                                                                  accumulate)),
                                 nproc);
      EXPECT_NEAR(run.weight(), 0.1F, 1e-5F);
      EXPECT_EQ(run.each_step("grad_norm"), std::vector<double>{9});
    }
  }
}

// C043: not a number on one rank: all ranks leave the update out, the schedule stands still, and
// the bits are those of a run in which another rank had it.
TEST_F(ExactValues, ANonFiniteGradientIsSkippedByAll) {
  const std::string yaml = recipe(one_to_eight, R"(
batch: {global: 8, micro: 2}
optimizer: {name: adam, lr: 0.1}
schedule: linear
parallel: {virtual_ranks: 4, check_sync: 1}
train: {epochs: 5, on_nonfinite: skip}
)");
  const std::vector<double> rates = {0.1, 0.08, 0.06, 0.04};
  std::vector<RunFiles> runs;
  for (const char* action : {"nan_grad", "inf_grad"}) {
    for (const int rank : {0, 1}) {
      const RunFiles run = new_output();
      const Outcome outcome =
          finish(command(yaml, 2, run),
                 {fmt::format("DTRAIN_FAULT=rank={},step=2,action={}", rank, action)});
      ASSERT_EQ(outcome.code, 0) << outcome.error;
      runs.push_back(run);
      const json summary = run.summary();
      EXPECT_EQ(summary.at("steps"), 4) << action;
      EXPECT_EQ(summary.at("skipped"), 1);
      EXPECT_EQ(summary.at("samples_seen"), 40);
      const auto found = run.each_step("lr");
      ASSERT_EQ(found.size(), rates.size());
      for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(found[i], rates[i], 1e-12);
      const auto skips = run.events("skip");
      ASSERT_EQ(skips.size(), 1);
      EXPECT_EQ(skips[0].at("step"), 2);
      EXPECT_NE((outcome.output + outcome.error).find(fmt::format("step 2 on rank {}", rank)),
                std::string::npos)
          << outcome.output << outcome.error;
      expect_same_bits(run, runs.front(), fmt::format("{} on rank {}", action, rank));
    }
  }
  EXPECT_NE(runs.front().digest(), train(yaml, 2).digest());
}

// C045: a diverging run stops before the update, and keeps its last good checkpoint.
TEST_F(ExactValues, ADivergingRunStopsWithoutSpoilingACheckpoint) {
  const std::string yaml = recipe(one_to_eight, R"(
batch: {global: 8, micro: 4}
optimizer: {lr: 1e6}
train: {epochs: 100}
checkpoint: {every_steps: 1, keep_last: 100}
)");
  const RunFiles run = new_output();
  const Outcome outcome = finish(command(yaml, 2, run));
  EXPECT_EQ(outcome.code, 1) << outcome.error;
  EXPECT_NE(outcome.error.find("is not finite in step"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("last finite loss"), std::string::npos) << outcome.error;
  EXPECT_EQ(run.summary().at("status"), "failed");
  const auto steps = list_checkpoints(run.checkpoints());
  ASSERT_FALSE(steps.empty());
  for (const std::int64_t step : steps) EXPECT_TRUE(std::isfinite(run.weight(step))) << step;
  EXPECT_EQ(run.summary().at("failure").at("step"), steps.back() + 1);
  EXPECT_TRUE(find_newest_checkpoint(run.checkpoints()));
}

// C059: an epoch's loss is by sample, not the mean of batch means 10 and 9.
TEST_F(ExactValues, EpochLossIsBySample) {
  const double a = std::sqrt(10.0);
  const std::string yaml = recipe({a, a, 3}, R"(
batch: {global: 2, micro: 1}
optimizer: {lr: 0}
parallel: {virtual_ranks: 2}
)");
  for (const int nproc : {1, 2}) {
    const RunFiles run = train(yaml, nproc);
    EXPECT_NEAR(run.events("epoch").at(0).at("loss"), 29.0 / 3, 1e-4);
    EXPECT_EQ(run.events("epoch").at(0).at("samples"), 3);
  }
}

// Samples of each epoch, in the order in which they were seen.
std::vector<std::vector<std::int64_t>> epochs_of(const RunFiles& run, std::size_t count) {
  std::vector<std::vector<std::int64_t>> epochs(count);
  for (const json& step : run.events("step")) {
    for (const std::int64_t id : step.at("ids")) epochs.at(step.at("epoch")).push_back(id);
  }
  return epochs;
}

// C005: a new permutation every epoch, each sample once, the same on a second run.
TEST_F(ExactValues, EveryEpochHasItsOwnOrder) {
  const std::string yaml = recipe(std::vector<double>(22, 1), R"(
seed: 7
batch: {global: 4, micro: 2}
optimizer: {lr: 0}
train: {epochs: 3}
log: {sample_ids: true}
)");
  const auto orders = [&](int nproc, const std::string& more = "seed=7") {
    return epochs_of(train(yaml, nproc, {"data.shuffle=true", more}), 3);
  };
  const auto epochs = orders(2);
  std::vector<std::int64_t> all(22);
  std::iota(all.begin(), all.end(), 0);
  for (auto ids : epochs) {
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, all);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
  EXPECT_EQ(orders(2), epochs);
  EXPECT_EQ(orders(1, "data.workers=4"), epochs);
  EXPECT_NE(orders(2, "seed=8"), epochs);
}

constexpr const char* small_mlp = R"(
seed: 1
model: {name: mlp, inputs: 16, hidden: [16], outputs: 5}
data:
  train: {kind: synthetic, shape: [16], classes: 5, size: 96}
  validation: {kind: synthetic, shape: [16], classes: 5, size: 20, offset: 96}
batch: {global: 16, micro: 2}
optimizer: {name: adam, lr: 0.01}
train: {steps: 10}
)";

// C046: resumed in the middle, with another rate, and after the end.
TEST_F(ExactValues, AResumedRunGoesOnAsIfNothingHadHappened) {
  const RunFiles straight = train(small_mlp, 2);
  const RunFiles resumed = train(small_mlp, 2, {"train.steps=5"});
  EXPECT_NE(resumed.digest(), straight.digest());
  train_in(resumed, small_mlp, 2, {"--resume"});
  expect_same_bits(resumed, straight, "5 + 5 steps");
  EXPECT_EQ(resumed.each_step("loss"), straight.each_step("loss"));

  // The recipe rules, and the difference is said.
  const RunFiles slower = train(small_mlp, 2, {"train.steps=5"});
  const Outcome outcome = finish(command(small_mlp, 2, slower, {"--resume", "optimizer.lr=0.001"}));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const std::string console = outcome.output + outcome.error;
  EXPECT_NE(console.find("optimizer.lr"), std::string::npos) << console;
  EXPECT_NE(console.find("0.001"), std::string::npos) << console;
  EXPECT_NE(console.find("going on with the new value"), std::string::npos) << console;
  EXPECT_EQ(slower.each_step("lr"),
            (std::vector<double>{0.01, 0.01, 0.01, 0.01, 0.01, 0.001, 0.001, 0.001, 0.001, 0.001}));

  // Nothing is left to do, and nothing is touched.
  std::vector<std::pair<fs::path, fs::file_time_type>> before;
  for (const auto& entry : fs::recursive_directory_iterator(straight.folder)) {
    if (entry.path().extension() != ".log") {
      before.emplace_back(entry.path(), entry.last_write_time());
    }
  }
  const Outcome again = finish(command(small_mlp, 3, straight, {"--resume"}));
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_NE((again.output + again.error).find("already at step 10 of 10, nothing to do"),
            std::string::npos)
      << again.output << again.error;
  for (const auto& [path, time] : before) {
    ASSERT_TRUE(fs::exists(path)) << path;
    // The folder itself holds the ranks' logs.
    EXPECT_EQ(fs::last_write_time(path), time) << path;
  }
}

// C048: another number of processes sees the rest of the epoch, once, and makes the same bits.
TEST_F(ExactValues, AResumedRunMayHaveOtherProcesses) {
  const std::string yaml = R"(
seed: 3
model: {name: mlp, inputs: 8, hidden: [16], outputs: 4}
data: {train: {kind: synthetic, shape: [8], classes: 4, size: 48}}
batch: {global: 8, micro: 2}
optimizer: {name: adam, lr: 0.01}
parallel: {virtual_ranks: 4}
train: {steps: 6}
log: {sample_ids: true}
)";
  const RunFiles undisturbed = train(yaml, 1);
  for (const int nproc : {2, 3}) {
    const RunFiles run = train(yaml, 4, {"train.steps=3"});
    auto first = epochs_of(run, 1).at(0);
    EXPECT_EQ(first.size(), 24);
    train_in(run, yaml, nproc, {"--resume"});
    EXPECT_EQ(run.each_step("step"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    auto ids = epochs_of(run, 1).at(0);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
    std::sort(ids.begin(), ids.end());
    std::vector<std::int64_t> all(48);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(ids, all);
    expect_same_bits(run, undisturbed, fmt::format("4 -> {} processes", nproc));
  }
  const RunFiles run = new_output();
  const Outcome outcome = finish(command(yaml, 5, run));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("1 to 4"), std::string::npos) << outcome.error;
  EXPECT_FALSE(fs::exists(run.folder));
}

// C052: a used folder is refused; --overwrite begins anew, and the old steps, though higher, harm
// nothing.
TEST_F(ExactValues, AUsedFolderIsRefusedOrCleared) {
  const RunFiles run = train(
      small_mlp, 1, {"train.steps=40", "checkpoint.every_steps=20", "checkpoint.keep_best=0"});
  EXPECT_EQ(list_checkpoints(run.checkpoints()), (std::vector<std::int64_t>{20, 40}));
  const std::string digest = run.digest();
  // What is not of a run stays.
  std::filesystem::create_directory(run.folder / "notes");
  const std::vector<std::string> fresh = {"checkpoint.every_steps=10", "checkpoint.keep_last=1",
                                          "checkpoint.keep_best=0"};
  const Outcome refused = finish(command(small_mlp, 2, run, fresh));
  EXPECT_EQ(refused.code, 2);
  for (const char* text : {"holds a run at step 40", "--resume", "--overwrite"}) {
    EXPECT_NE(refused.error.find(text), std::string::npos) << refused.error;
  }
  EXPECT_EQ(run.digest(), digest);
  EXPECT_EQ(list_checkpoints(run.checkpoints()), (std::vector<std::int64_t>{20, 40}));

  std::vector<std::string> over = fresh;
  over.push_back("--overwrite");
  train_in(run, small_mlp, 2, over);
  EXPECT_EQ(list_checkpoints(run.checkpoints()), std::vector<std::int64_t>{10});
  EXPECT_TRUE(fs::exists(run.folder / "notes"));
  EXPECT_EQ(run.digest(), train(small_mlp, 1).digest());
}

// C067: a second run, loader workers, validation and logging change no bit.
TEST_F(ExactValues, OnlyTheRecipeDecides) {
  const std::string digest = train(small_mlp, 2).digest();
  for (const std::vector<std::string>& extra :
       std::vector<std::vector<std::string>>{{},
                                             {"data.workers=0"},
                                             {"data.workers=4"},
                                             {"validation.every_steps=1"},
                                             {"log.every_steps=1", "log.sample_ids=true"},
                                             {"checkpoint.every_steps=1"},
                                             {"parallel.check_sync=1"},
                                             {"parallel.bucket_mb=0.001"}}) {
    EXPECT_EQ(train(small_mlp, 2, extra).digest(), digest) << fmt::format("{}", extra);
  }
  // Nor what the environment says about threads.
  for (const char* variable : {"OMP_NUM_THREADS=3", "OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true"}) {
    const RunFiles run = new_output();
    EXPECT_EQ(finish(command(small_mlp, 2, run), {variable}).code, 0);
    EXPECT_EQ(run.digest(), digest) << variable;
  }
  std::string yaml = small_mlp;
  yaml.replace(yaml.find("  validation:"), yaml.find("batch:") - yaml.find("  validation:"), "");
  EXPECT_EQ(train(yaml, 2).digest(), digest);
}

// C017: weights of one mode begin another, and no wrapper's prefix is in a name.
TEST_F(ExactValues, WeightsOfOneModeLoadInAnother) {
  const std::string yaml = R"(
model: {name: convnet, channels: [4], hidden: 8, dropout: 0.1}
data: {train: {kind: glyphs, size: 32}, validation: {kind: glyphs, size: 10, offset: 32}}
batch: {global: 16, micro: 2}
optimizer: {name: sgd, lr: 0.05}
train: {steps: 2}
)";
  struct Mode {
    int nproc;
    std::string name;
  };
  const std::vector<Mode> modes = {{1, "single"}, {2, "ddp"}};
  for (const Mode& from : modes) {
    const RunFiles source = train(yaml, from.nproc, {"parallel.mode=" + from.name});
    const fs::path weights = source.last_checkpoint() / "model.safetensors";
    const SafetensorsFile file(weights);
    // As another tool's wrapper names them.
    const fs::path wrapped = folder_.path() / ("wrapped-" + from.name + ".safetensors");
    std::vector<NamedTensor> tensors;
    std::vector<std::vector<std::byte>> bytes;
    for (const TensorEntry& entry : file.entries()) {
      EXPECT_EQ(entry.name.find("module"), std::string::npos) << entry.name;
      bytes.emplace_back(entry.end - entry.begin);
      file.read(entry, bytes.back());
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const TensorEntry& entry = file.entries()[i];
      tensors.push_back({"module." + entry.name, entry.dtype, entry.shape, bytes[i]});
    }
    write_safetensors(wrapped, tensors);
    for (const Mode& to : modes) {
      for (const fs::path& path : {weights, source.folder, wrapped}) {
        const RunFiles run = new_output();
        const Outcome outcome = finish(command(
            yaml, to.nproc, run, {"parallel.mode=" + to.name, "init.from=" + path.string()}));
        ASSERT_EQ(outcome.code, 0) << outcome.error;
        EXPECT_EQ(run.events("start").at(0).at("weights_digest"), source.digest())
            << from.name << " -> " << to.name << ": " << path;
        if (path == wrapped) {
          EXPECT_NE((outcome.output + outcome.error).find("module."), std::string::npos);
        }
        std::vector<std::string> evaluate =
            command(yaml, to.nproc, run, {"--weights", path, "parallel.mode=" + to.name});
        evaluate.insert(evaluate.begin() + 1, "eval");
        const Outcome evaluated = finish(evaluate);
        ASSERT_EQ(evaluated.code, 0) << evaluated.error;
        const json result = json::parse(evaluated.output);
        EXPECT_EQ(result.at("weights_digest"), source.digest());
        EXPECT_EQ(result.at("loss"), source.summary().at("validation").at("loss"));
      }
    }
  }
}

}  // namespace
}  // namespace dtrain
