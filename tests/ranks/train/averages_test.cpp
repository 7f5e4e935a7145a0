// The exponential moving average of weights and running statistics, and what a step log tells of
// groups of parameters.
#include <cmath>
#include <csignal>
#include <fstream>

#include "training.h"
#include <gtest/gtest.h>

#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain::test {
namespace {

// y = w x with x = 1, t = 1..8 and the rate 0.1, from 0: w is 0.9, 1.62, 2.196 after three steps.
constexpr const char* line = R"(
model: {name: mlp, inputs: 1, hidden: [], outputs: 1, bias: false, init: zeros}
loss: mse
data:
  train: {kind: csv, path: POINTS, features: [x], targets: [t]}
  validation: {kind: csv, path: POINTS, features: [x], targets: [t]}
  shuffle: false
batch: {global: 8, micro: 1}
optimizer: {name: sgd, lr: 0.1}
train: {epochs: 3, ema_decay: 0.75}
parallel: {virtual_ranks: 4}
)";

constexpr const char* convnet = R"(
model: {name: convnet, channels: [4], hidden: 8, dropout: 0.2}
data:
  train: {kind: glyphs, size: 50}
  validation: {kind: glyphs, size: 20, offset: 50}
batch: {global: 8, micro: 2}
optimizer: {name: lamb, lr: 0.01}
train: {epochs: 2, ema_decay: 0.9, clip_norm: 1}
checkpoint: {every_steps: 3, keep_last: 9}
parallel: {virtual_ranks: 4}
seed: 3
)";

class Averages : public testing::Test {
 protected:
  std::filesystem::path folder(const std::string& name) const { return folder_.path() / name; }
  std::string line_recipe() const {
    const auto points = folder("points.csv");
    if (!std::filesystem::exists(points)) {
      std::ofstream(points) << "x,t\n1,1\n1,2\n1,3\n1,4\n1,5\n1,6\n1,7\n1,8\n";
    }
    std::string text = line;
    for (auto at = text.find("POINTS"); at != std::string::npos; at = text.find("POINTS")) {
      text.replace(at, 6, points.string());
    }
    return text;
  }
  static std::filesystem::path last(const TrainingRun& run) {
    return run.folder / "checkpoints" /
           checkpoint_name(run.result.summary.at("steps").get<std::int64_t>());
  }
  static float weight_in(const std::filesystem::path& file) {
    float weight = 0;
    const std::vector<TensorTarget> target = {
        {"fc1.weight", DType::f32, Shape{1, 1}, std::as_writable_bytes(std::span(&weight, 1))}};
    load_tensors(file, target, true);
    return weight;
  }
  TemporaryDirectory folder_;
};

// The first update sets the average, as in torch.optim.swa_utils.AveragedModel.
TEST_F(Averages, FollowTheWeightsAndAreWhatIsValidated) {
  const TrainingRun run = train_threads(line_recipe(), 2, folder("run"));
  const double second = 0.75 * 0.9 + 0.25 * 1.62;
  const double third = 0.75 * second + 0.25 * 2.196;
  EXPECT_NEAR(weight_in(last(run) / "model.safetensors"), 2.196, 1e-5);
  EXPECT_NEAR(weight_in(last(run) / "ema.safetensors"), third, 1e-5);
  double loss = 0;
  for (int t = 1; t <= 8; ++t) loss += (third - t) * (third - t) / 8;
  EXPECT_NEAR(run.result.summary.at("validation").at("loss"), loss, 1e-4);
  const std::vector<nlohmann::json> evaluations = run.events("evaluation");
  ASSERT_EQ(evaluations.size(), 3U);
  double first = 0;
  for (int t = 1; t <= 8; ++t) first += (0.9 - t) * (0.9 - t) / 8;
  EXPECT_NEAR(evaluations[0].at("loss"), first, 1e-4);
}

TEST_F(Averages, NoFileWithoutAverages) {
  const TrainingRun run = train_threads(line_recipe(), 1, folder("run"), {"train.ema_decay=0"});
  EXPECT_FALSE(std::filesystem::exists(last(run) / "ema.safetensors"));
  EXPECT_EQ(resolve_weights(run.folder, true).filename(), "model.safetensors");
}

TEST_F(Averages, DoNotChangeTheWeights) {
  const TrainingRun with = train_threads(convnet, 2, folder("with"));
  const TrainingRun without = train_threads(convnet, 2, folder("without"), {"train.ema_decay=0"});
  EXPECT_EQ(with.digest(), without.digest());
  EXPECT_EQ(with.steps("loss"), without.steps("loss"));
  EXPECT_EQ(resolve_weights(with.folder, true).filename(), "ema.safetensors");
  EXPECT_EQ(resolve_weights(with.folder).filename(), "model.safetensors");
}

TEST_F(Averages, HaveTheSameBitsOnAnyRanksAndResumed) {
  const TrainingRun whole = train_threads(convnet, 1, folder("whole"));
  const std::string averages = text_of(last(whole) / "ema.safetensors");
  for (const int ranks : {2, 3, 4}) {
    const TrainingRun other = train_threads(convnet, ranks, folder(std::to_string(ranks)));
    EXPECT_EQ(other.digest(), whole.digest());
    EXPECT_TRUE(text_of(last(other) / "ema.safetensors") == averages) << ranks;
  }
  const auto out = folder("cut");
  train_threads(convnet, 2, out);
  for (const int step : {9, 12, 14}) {
    std::filesystem::remove_all(out / "checkpoints" / checkpoint_name(step));
  }
  std::filesystem::remove(out / "summary.json");
  const TrainingRun rest = train_threads(convnet, 3, out, {}, {.resume = true});
  EXPECT_EQ(rest.digest(), whole.digest());
  EXPECT_TRUE(text_of(last(rest) / "ema.safetensors") == averages);
  EXPECT_EQ(rest.result.summary.at("validation"), whole.result.summary.at("validation"));
}

// A run that had no averages may go on with them: they begin at its weights.
TEST_F(Averages, MayBeginInAResumedRun) {
  std::atomic<int> signal = SIGTERM;
  train_threads(line_recipe(), 1, folder("run"), {"train.ema_decay=0"}, {.stop_signal = &signal});
  const TrainingRun rest = train_threads(line_recipe(), 1, folder("run"), {}, {.resume = true});
  const double second = 0.75 * 0.9 + 0.25 * 1.62;
  EXPECT_NEAR(weight_in(last(rest) / "ema.safetensors"), 0.75 * second + 0.25 * 2.196, 1e-5);
}

TEST_F(Averages, DamagedAveragesAreADamagedCheckpoint) {
  const TrainingRun run = train_threads(line_recipe(), 1, folder("run"));
  std::filesystem::resize_file(last(run) / "ema.safetensors", 50);
  EXPECT_THROW(verify_checkpoint(last(run)), CheckpointError);
}

TEST_F(Averages, NormsOfGroupsMakeTheNorm) {
  const TrainingRun run = train_threads(convnet, 2, folder("run"));
  for (const nlohmann::json& step : run.events("step")) {
    const double weights = step.at("grad_norms").at("weights");
    const double others = step.at("grad_norms").at("norm_and_bias");
    EXPECT_GT(others, 0);
    EXPECT_NEAR(std::hypot(weights, others), step.at("grad_norm"), 1e-9);
  }
  const TrainingRun one = train_threads(line_recipe(), 1, folder("line"));
  EXPECT_EQ(one.events("step")[0].at("grad_norms"), (nlohmann::json{{"weights", 9.0}}));
}

}  // namespace
}  // namespace dtrain::test
