// Recipes whose weights and losses are known exactly.
#include <cmath>
#include <fstream>

#include "training.h"
#include <gtest/gtest.h>

#include "dtrain/core/checkpoint/safetensors.h"

namespace dtrain::test {
namespace {

// y = w x with x = 1 and w = 0 at first.
class ExactValues : public testing::Test {
 protected:
  std::string recipe(const std::vector<double>& targets, const std::string& rest) {
    const auto path = folder_.path() / ("points" + std::to_string(files_++) + ".csv");
    std::ofstream file(path);
    file << "x,t\n";
    for (const double t : targets) file << "1," << t << "\n";
    return "model: {name: mlp, inputs: 1, hidden: [], outputs: 1, bias: false, init: zeros}\n"
           "loss: mse\n"
           "data: {train: {kind: csv, path: " +
           path.string() + ", features: [x], targets: [t]}, shuffle: false}\n" + rest;
  }
  TrainingRun run(const std::string& yaml, int ranks,
                  const std::vector<std::string>& overrides = {}) {
    return train_threads(yaml, ranks, folder_.path() / ("run" + std::to_string(runs_++)),
                         overrides);
  }
  static float weight(const TrainingRun& run) {
    const auto steps = run.result.summary.at("steps").get<int>();
    const SafetensorsFile file(run.folder / fmt::format("checkpoints/step-{:08}", steps) /
                               "model.safetensors");
    float value = 0;
    file.read(file.entries().at(0), std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  TemporaryDirectory folder_;
  int files_ = 0;
  int runs_ = 0;
};

// C010: t = 1..8: gradient -9, first loss 25.5, w = 0.9 after one step, however it is cut.
TEST_F(ExactValues, AccumulationIsTheSameAsALargeBatch) {
  struct Cut {
    int ranks, micro, accumulate;
  };
  for (const Cut cut :
       {Cut{1, 8, 1}, {1, 1, 8}, {2, 4, 1}, {2, 2, 2}, {2, 1, 4}, {4, 1, 2}, {4, 2, 1}}) {
    const std::string yaml =
        recipe({1, 2, 3, 4, 5, 6, 7, 8},
               fmt::format("batch: {{micro: {}, accumulate: {}}}\noptimizer: {{lr: 0.1}}\n"
                           "parallel: {{virtual_ranks: {}}}\n",
                           cut.micro, cut.accumulate, cut.ranks));
    const TrainingRun r = run(yaml, cut.ranks);
    EXPECT_NEAR(weight(r), 0.9F, 1e-6F) << cut.ranks << " " << cut.micro;
    EXPECT_EQ(r.steps("loss"), std::vector<double>{25.5});
    EXPECT_EQ(r.steps("grad_norm"), std::vector<double>{9});
  }
}

// C042: the norm reported is the global one before clipping, the update is the clipped one.
TEST_F(ExactValues, ClippingUsesTheGlobalNorm) {
  for (const int ranks : {1, 2}) {
    for (const int accumulate : {1, 2}) {
      const std::string yaml =
          recipe({1, 2, 3, 4, 5, 6, 7, 8},
                 fmt::format("batch: {{global: 8, accumulate: {}}}\noptimizer: {{lr: 0.1}}\n"
                             "parallel: {{virtual_ranks: 2}}\ntrain: {{clip_norm: 1}}\n",
                             accumulate));
      const TrainingRun r = run(yaml, ranks);
      EXPECT_NEAR(weight(r), 0.1F, 1e-5F);
      EXPECT_EQ(r.steps("grad_norm"), std::vector<double>{9});
    }
  }
}

// C011: shares of 3 and 2 samples; the loss is that of all five, in every epoch.
TEST_F(ExactValues, LossIsThatOfAllSamples) {
  const std::string yaml = recipe({1, 3, 1, 3, 1},
                                  "batch: {global: 6, micro: 3}\noptimizer: {lr: 0}\n"
                                  "parallel: {virtual_ranks: 2}\ntrain: {epochs: 5}\n");
  const TrainingRun r = run(yaml, 2);
  EXPECT_EQ(r.steps("loss"), std::vector<double>(5, 4.2));
  for (const auto& epoch : r.events("epoch")) {
    EXPECT_EQ(epoch.at("loss"), 4.2);
    EXPECT_EQ(epoch.at("samples"), 5);
  }
}

// C038: 7 samples, 4 and 3: every sample weighs the same.
TEST_F(ExactValues, UnevenInputsAreWeightedBySample) {
  const std::string yaml = recipe({0, 0, 0, 0, 0, 0, 7},
                                  "batch: {global: 8, micro: 4}\noptimizer: {lr: 0.1}\n"
                                  "parallel: {virtual_ranks: 2}\n");
  for (const int ranks : {1, 2}) EXPECT_NEAR(weight(run(yaml, ranks)), 0.2F, 1e-7F);
}

// C040: the last, short window is neither dropped nor divided by the full one.
TEST_F(ExactValues, ShortLastWindow) {
  const std::string rest =
      "batch: {micro: 1, accumulate: 4}\noptimizer: {lr: 0.1}\nparallel: {virtual_ranks: 1}\n"
      "checkpoint: {every_steps: 1, keep_last: 9}\n";
  const TrainingRun r = run(recipe({1, 2, 3, 4, 5, 6, 7}, rest), 1);
  EXPECT_EQ(r.result.summary.at("steps"), 2);
  const SafetensorsFile first(r.folder / "checkpoints/step-00000001/model.safetensors");
  float w = 0;
  first.read(first.entries().at(0), std::as_writable_bytes(std::span(&w, 1)));
  EXPECT_NEAR(w, 0.5F, 1e-6F);
  EXPECT_NEAR(weight(r), 1.6F, 1e-6F);
  // The next epoch starts from a zero gradient: step 3 moves by 2 * 0.1 * (2.5 - w).
  const TrainingRun two = run(recipe({1, 2, 3, 4, 5, 6, 7}, rest + "train: {epochs: 2}\n"), 1);
  const double third = 1.6 + 0.2 * (2.5 - 1.6);
  EXPECT_NEAR(weight(two), third + 0.2 * (6 - third), 1e-5);
  EXPECT_NEAR(weight(run(recipe({1, 2, 3}, rest), 1)), 0.4F, 1e-6F);
}

// C023: the rate counts optimizer steps, not micro-batches or processes.
TEST_F(ExactValues, ScheduleCountsOptimizerSteps) {
  std::vector<double> targets(64, 1);
  for (const int ranks : {1, 2, 4}) {
    const std::string yaml =
        recipe(targets, fmt::format("batch: {{micro: 4, accumulate: {}}}\noptimizer: {{lr: 0.4}}\n"
                                    "schedule: linear\nparallel: {{virtual_ranks: {}}}\n",
                                    4 / ranks, ranks));
    const TrainingRun r = run(yaml, ranks);
    const std::vector<double> rates = r.steps("lr");
    ASSERT_EQ(rates.size(), 4);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(rates[i], 0.4 - 0.1 * i, 1e-12);
  }
}

// C059: an epoch's loss is by sample, not the mean of batch means 10 and 9.
TEST_F(ExactValues, EpochLossIsBySample) {
  const double a = std::sqrt(10.0);
  const std::string yaml = recipe({a, a, 3}, "batch: {global: 2, micro: 1}\noptimizer: {lr: 0}\n");
  for (const int ranks : {1, 2}) {
    const TrainingRun r = run(yaml, ranks, {"parallel.virtual_ranks=2"});
    EXPECT_NEAR(r.events("epoch").at(0).at("loss"), 29.0 / 3, 1e-4);
  }
}

// C045: a diverging run stops before the update, and keeps its last good checkpoint.
TEST_F(ExactValues, StopsAtTheFirstNonFiniteLoss) {
  const std::string yaml =
      recipe({1, 2, 3, 4, 5, 6, 7, 8},
             "batch: {global: 8, micro: 4}\noptimizer: {lr: 1e6}\ntrain: {epochs: 100}\n"
             "checkpoint: {every_steps: 1, keep_last: 100}\n");
  const auto folder = folder_.path() / "diverges";
  try {
    train_threads(yaml, 2, folder);
    FAIL() << "the run did not stop";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("not finite in step"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("last finite loss"), std::string::npos);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints")) {
    const SafetensorsFile file(entry.path() / "model.safetensors");
    float value = 0;
    file.read(file.entries().at(0), std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_TRUE(std::isfinite(value)) << entry.path();
  }
}

// C005: a new permutation every epoch, each sample once, the same on a second run.
TEST_F(ExactValues, EveryEpochHasItsOwnOrder) {
  const std::string yaml =
      recipe(std::vector<double>(22, 1),
             "seed: 7\nbatch: {global: 4, micro: 2}\noptimizer: {lr: 0}\ntrain: {epochs: 3}\n"
             "log: {sample_ids: true}\n");
  const auto orders = [&](const TrainingRun& r) {
    std::vector<std::vector<std::int64_t>> epochs(3);
    for (const auto& step : r.events("step")) {
      for (const std::int64_t id : step.at("ids"))
        epochs[step.at("epoch").get<int>()].push_back(id);
    }
    return epochs;
  };
  const std::vector<std::string> shuffled = {"data.shuffle=true"};
  const auto epochs = orders(run(yaml, 2, shuffled));
  for (auto ids : epochs) {
    std::sort(ids.begin(), ids.end());
    std::vector<std::int64_t> all(22);
    for (int i = 0; i < 22; ++i) all[i] = i;
    EXPECT_EQ(ids, all);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
  EXPECT_EQ(orders(run(yaml, 1, shuffled)), epochs);
  EXPECT_NE(orders(run(yaml, 2, {"data.shuffle=true", "seed=8"})), epochs);
}

}  // namespace
}  // namespace dtrain::test
