// Runs that go wrong in known ways: models that differ, parameters without gradient, weights that
// change by themselves, numbers that are not finite.
#include "dtrain/parallel/train/trainer.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support.h"

#include "dtrain/core/checkpoint/safetensors.h"
#include "dtrain/core/nn/layers.h"

namespace dtrain::test {
namespace {

// A linear model and whatever else a test does to it.
class Custom final : public Module {
 public:
  struct Options {
    std::int64_t classes = 10;
    bool head2 = false;                                      // a layer that forward does not use
    std::function<void(const Tensor& fc_bias)> tamper = {};  // at the end of a training forward
  };
  explicit Custom(Options options)
      : options_(std::move(options)), fc_(add<Linear>("fc", 784, options_.classes, false)) {
    if (options_.head2) add<Linear>("head2", 5, 3);
    if (options_.tamper) shift_ = &add_parameter("shift", {10}, InitScheme::zeros, 1);
  }
  Value forward(Pass& pass, const Value& x) const override {
    const Value y = fc_.forward(pass, functions::flatten(pass, x));
    if (shift_ == nullptr || !pass.training()) return y;
    const Tensor shift = pass.weight(*shift_);
    if (y.shape()[0] > 0) options_.tamper(shift);
    return y;
  }

 private:
  Options options_;
  const Linear& fc_;
  const Parameter* shift_ = nullptr;
};

Registry registry_of(const std::function<Custom::Options(int made)>& options) {
  Registry registry = builtin_registry();
  registry.models.add(KindSchema("custom"), [options, made = std::make_shared<std::atomic<int>>(0)](
                                                const KindValues&, const ModelInput&) {
    return std::make_unique<Custom>(options((*made)++));
  });
  return registry;
}

constexpr const char* recipe = R"(
model: {name: custom}
data: {train: {kind: glyphs, size: 24}, validation: {kind: glyphs, size: 8, offset: 24}}
batch: {global: 8, micro: 2}
optimizer: {lr: 0.1}
train: {steps: 3}
parallel: {virtual_ranks: 4, cores: 1}
)";

class TrainerTest : public testing::Test {
 protected:
  TrainingRun train(const Registry& registry, int ranks,
                    const std::vector<std::string>& overrides = {}) {
    return train_threads(recipe, ranks, folder_.path() / std::to_string(runs_++), overrides, {},
                         registry);
  }
  TemporaryDirectory folder_;
  int runs_ = 0;
};

// C073, through the whole start of a run: by name and shape, not as another bucket plan.
TEST_F(TrainerTest, ModelsThatDifferBetweenRanksAreNamed) {
  const Registry registry =
      registry_of([](int made) { return Custom::Options{.classes = made == 0 ? 10 : 12}; });
  const std::string text = error_of<ConfigError>([&] { train(registry, 2); });
  EXPECT_TRUE(contains(text, "fc.weight: rank ")) << text;
  EXPECT_TRUE(contains(text, "[10, 784]") && contains(text, "[12, 784]")) << text;
}

// C004.
TEST_F(TrainerTest, UnusedParametersAreListedOnceAndTrainOn) {
  const Registry registry = registry_of([](int) { return Custom::Options{.head2 = true}; });
  for (const int ranks : {1, 2}) {
    const CapturedLog log;
    const TrainingRun run = train(registry, ranks);
    EXPECT_EQ(run.result.summary.at("steps"), 3);
    const std::string warning =
        "warning: the loss does not depend on: head2.bias, head2.weight; trained with zero "
        "gradients\n";
    const std::string text = log.text();
    ASSERT_TRUE(contains(text, warning)) << text;
    EXPECT_EQ(text.find(warning), text.rfind(warning));
  }
  // Where nothing moves them they keep their first values.
  const TrainingRun whole = train(registry, 1), one = train(registry, 1, {"train.steps=1"});
  const auto head2 = [](const TrainingRun& run, int step) {
    const SafetensorsFile file(run.folder / fmt::format("checkpoints/step-{:08}", step) /
                               "model.safetensors");
    std::vector<float> values(15);
    for (const auto& entry : file.entries()) {
      if (entry.name == "head2.weight") file.read(entry, std::as_writable_bytes(std::span(values)));
    }
    return values;
  };
  EXPECT_EQ(head2(whole, 3), head2(one, 1));
  EXPECT_NE(head2(whole, 3), std::vector<float>(15));
}

TEST_F(TrainerTest, UnusedParametersCanBeAnError) {
  const Registry registry = registry_of([](int) { return Custom::Options{.head2 = true}; });
  EXPECT_EQ(
      error_of<ConfigError>([&] { train(registry, 2, {"parallel.unused_parameters=error"}); }),
      "parameters that the loss does not depend on: head2.bias, head2.weight; use them, take "
      "them out, or set parallel.unused_parameters: warn to train them with zero gradients");
}

// A bit of one rank's weights turns over in the second step.
TEST_F(TrainerTest, CheckSyncFindsWeightsThatChangedByThemselves) {
  const auto flip_once = [](int made) {
    return Custom::Options{.tamper = [made, calls = std::make_shared<int>(0)](const Tensor& shift) {
      if (made == 1 && ++*calls == 3) shift.values<float>()[4] = 1e-3F;
    }};
  };
  EXPECT_EQ(
      error_of<InternalError>([&] { train(registry_of(flip_once), 2, {"parallel.check_sync=2"}); }),
      "check_sync: the weights of rank 1 differ from those of rank 0 in shift; suspect the "
      "memory or the processor of one of the two hosts; go on from the last checkpoint with "
      "--resume");
  EXPECT_EQ(error_of<Error>([&] { train(registry_of(flip_once), 2); }), "");  // off: not looked for
}

// Teams of two threads inside each virtual rank: another recipe, of the same bits everywhere.
TEST_F(TrainerTest, TwoThreadsPerVirtualRank) {
  std::vector<std::string> digests;
  for (const auto& [ranks, cores] : {std::pair{1, 2}, {1, 4}, {2, 2}, {4, 2}}) {
    const auto out = folder_.path() / fmt::format("run{}", digests.size());
    digests.push_back(train_threads(small_recipe, ranks, out,
                                    {"parallel.threads_per_virtual_rank=2",
                                     fmt::format("parallel.cores={}", cores)})
                          .digest());
  }
  EXPECT_EQ(digests, std::vector<std::string>(4, digests[0]));
}

class Faulty : public TrainerTest {
 protected:
  ~Faulty() override { ::unsetenv("DTRAIN_FAULT"); }
  static void inject(const std::string& fault) { ::setenv("DTRAIN_FAULT", fault.c_str(), 1); }
  const Registry registry_ = registry_of([](int) { return Custom::Options{}; });
};

TEST_F(Faulty, NonFiniteGradientsStopBeforeTheUpdateAndNameTheRank) {
  for (const char* kind : {"nan_grad", "inf_grad"}) {
    inject(fmt::format("rank=1,step=2,action={}", kind));
    const std::string text = error_of<Error>([&] { train(registry_, 2); });
    EXPECT_TRUE(contains(text, "the gradient is not finite in step 2 on rank 1")) << text;
  }
}

TEST_F(Faulty, SkippedUpdatesChangeNothingAndCountAsBatches) {
  inject("rank=0,step=1,action=nan_grad");
  const TrainingRun run = train(registry_, 2,
                                {"train.on_nonfinite=skip", "checkpoint.every_steps=1",
                                 "validation.every_steps=1", "checkpoint.keep_last=9"});
  EXPECT_EQ(run.result.summary.at("steps"), 3);
  EXPECT_EQ(run.result.summary.at("samples_seen"), 8 * (3 + 1 + 0));
  EXPECT_EQ(run.result.summary.at("skipped"), 1);
  ASSERT_EQ(run.events("skip").size(), 1U);
  EXPECT_EQ(run.events("skip")[0].at("step"), 1);
  // Nothing was made before the first update: nothing to evaluate or to save.
  EXPECT_FALSE(std::filesystem::exists(run.folder / "checkpoints/step-00000000"));
  EXPECT_EQ(run.events("evaluation").size(), 3U);
}

TEST_F(Faulty, AnErrorOfOneRankEndsAll) {
  inject("rank=1,step=2,action=throw");
  for (const int ranks : {2, 4}) {
    const std::string text = error_of<Error>([&] { train(registry_, ranks); });
    EXPECT_TRUE(contains(text, "injected fault at step 2")) << text;
  }
}

// An evaluation whose loss is not finite ranks nothing; the next finite one is the best.
TEST_F(TrainerTest, AnEvaluationThatIsNotFiniteIsNeverTheBest) {
  class Overflowing final : public Module {
   public:
    explicit Overflowing(std::shared_ptr<std::atomic<int>> evaluations)
        : fc_(add<Linear>("fc", 784, 10)), evaluations_(std::move(evaluations)) {}
    Value forward(Pass& pass, const Value& x) const override {
      const Value y = fc_.forward(pass, functions::flatten(pass, x));
      if (!pass.training() && (*evaluations_)++ < 4) {
        y.tensor.values<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      }
      return y;
    }

   private:
    const Linear& fc_;
    std::shared_ptr<std::atomic<int>> evaluations_;
  };
  Registry registry = builtin_registry();
  registry.models.add(KindSchema("custom"), [evaluations = std::make_shared<std::atomic<int>>(0)](
                                                const KindValues&, const ModelInput&) {
    return std::make_unique<Overflowing>(evaluations);
  });
  const auto out = folder_.path() / "run";
  const std::vector<std::string> overrides = {"validation.every_steps=1",
                                              "checkpoint.every_steps=1"};
  const TrainingRun run = train_threads(recipe, 1, out, overrides, {}, registry);
  ASSERT_EQ(run.events("evaluation").size(), 3U);
  EXPECT_EQ(run.events("evaluation")[0].at("loss"), "NaN");
  EXPECT_GE(run.result.summary.at("best").at("step"), 2);
  EXPECT_TRUE(run.result.summary.at("best").at("loss").is_number());
}

// A checkpoint whose own evaluation was not finite can be gone on from.
TEST_F(TrainerTest, ResumesBehindAnEvaluationThatWasNotFinite) {
  class NotANumber final : public Module {
   public:
    NotANumber() : fc_(add<Linear>("fc", 784, 10)) {}
    Value forward(Pass& pass, const Value& x) const override {
      const Value y = fc_.forward(pass, functions::flatten(pass, x));
      if (!pass.training() && y.shape()[0] > 0) {
        y.tensor.values<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      }
      return y;
    }

   private:
    const Linear& fc_;
  };
  Registry registry = builtin_registry();
  registry.models.add(KindSchema("custom"), [](const KindValues&, const ModelInput&) {
    return std::make_unique<NotANumber>();
  });
  const auto out = folder_.path() / "run";
  train_threads(recipe, 1, out, {}, {}, registry);
  std::filesystem::remove(out / "summary.json");
  const TrainingRun again = train_threads(recipe, 1, out, {}, {.resume = true}, registry);
  EXPECT_EQ(again.result.summary.at("steps"), 3);
  EXPECT_TRUE(again.result.summary.at("best").is_null());
  const TrainingRun more =
      train_threads(recipe, 1, out, {"train.steps=4"}, {.resume = true}, registry);
  EXPECT_EQ(more.result.summary.at("steps"), 4);
}

// A data set some of whose samples cannot be read.
class Damaged final : public Dataset {
 public:
  explicit Damaged(std::function<bool(std::int64_t)> bad) : bad_(std::move(bad)) {}
  std::int64_t size() const override { return 32; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t i, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    if (bad_(i)) throw DataError(fmt::format("image-{}.png", i), -1, "is cut short");
    std::ranges::fill(input, std::byte{0});
    std::ranges::fill(target, std::byte{0});
  }
  std::string origin(std::int64_t i) const override { return fmt::format("image-{}.png", i); }
  std::string identity() const override { return "damaged"; }

 private:
  std::function<bool(std::int64_t)> bad_;
  SampleSpec spec_{.input = {DType::f32, {784}}, .target = {DType::i64, {}}, .classes = 10};
};

class DamagedData : public TrainerTest {
 protected:
  TrainingRun train_on(const std::function<bool(std::int64_t)>& bad, int ranks,
                       const std::vector<std::string>& more = {}) {
    Registry registry = builtin_registry();
    registry.models.add(KindSchema("custom"), [](const KindValues&, const ModelInput&) {
      return std::make_unique<Custom>(Custom::Options{});
    });
    registry.datasets.add(KindSchema("damaged"),
                          [bad](const KindValues&) { return std::make_unique<Damaged>(bad); });
    std::vector<std::string> overrides = {
        "data={train: {kind: damaged, size: 24}, validation: {kind: damaged, size: 8, offset: 24}, "
        "on_bad_sample: skip, shuffle: false}"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return train(registry, ranks, overrides);
  }
};

// C009.
TEST_F(DamagedData, SkippedSamplesStandInTheSummaryOfAllRanks) {
  for (const int ranks : {1, 2, 4}) {
    const TrainingRun run =
        train_on([](std::int64_t i) { return i == 3 || i == 6 || i == 17 || i == 25; }, ranks,
                 {"train.steps=6"});
    const auto& skipped = run.result.summary.at("skipped_samples");
    EXPECT_EQ(run.result.summary.at("steps"), 6);
    EXPECT_EQ(skipped.at("count"), 4);
    std::string all;
    for (const auto& s : skipped.at("samples")) {
      all += fmt::format("{} {} {};", s.at("data").get<std::string>(), s.at("id").get<int>(),
                         s.at("reason").get<std::string>());
    }
    EXPECT_EQ(all,
              "train 3 image-3.png: is cut short;train 6 image-6.png: is cut short;"
              "train 17 image-17.png: is cut short;validation 1 image-25.png: is cut short;");
  }
}

TEST_F(DamagedData, AStepWithoutSamplesChangesNothingAndSaysNothingOfParameters) {
  for (const int ranks : {1, 2}) {
    const CapturedLog log;
    // The first batch is bad, so batches 2 and 3 are the two steps of an epoch.
    const TrainingRun run =
        train_on([](std::int64_t i) { return i < 8; }, ranks, {"train.epochs=1"});
    EXPECT_EQ(run.result.summary.at("steps"), 2);
    EXPECT_EQ(run.result.summary.at("skipped"), 1);
    ASSERT_EQ(run.events("skip").size(), 1U);
    EXPECT_TRUE(run.events("skip")[0].at("loss").is_null());
    EXPECT_TRUE(contains(log.text(), "step 1: none of its samples could be read: update skipped"));
    EXPECT_FALSE(contains(log.text(), "does not depend on")) << log.text();
  }
}

// Weight decay would move the weights without any gradient.
TEST_F(DamagedData, AStepWithoutSamplesDecaysNothing) {
  const auto first_bad = [](std::int64_t i) { return i < 8; };
  const std::string decay = "optimizer={name: sgd, lr: 0.1, weight_decay: 0.5}";
  const TrainingRun late = train_on(first_bad, 1, {"train.steps=1", decay});
  const TrainingRun none =
      train_on([](std::int64_t) { return false; }, 1, {"train.steps=1", decay});
  EXPECT_EQ(late.digest(), none.digest());  // all samples are alike: one update each
}

TEST_F(DamagedData, AnEpochWithoutASampleIsAnError) {
  for (const std::string length : {"train.epochs=2", "train.steps=5"}) {
    EXPECT_EQ(error_of<ConfigError>(
                  [&] { train_on([](std::int64_t i) { return i < 24; }, 2, {length}); }),
              "data.train: epoch 0 has no sample that can be read: 24 skipped "
              "(data.on_bad_sample: skip), the first because of image-0.png: is cut short");
  }
}

TEST_F(DamagedData, AnEvaluationWithoutSamplesHasNoLossAndIsNeverBest) {
  const TrainingRun run = train_on([](std::int64_t i) { return i >= 24; }, 2,
                                   {"train.epochs=3", "train.early_stop_patience=1"});
  EXPECT_EQ(run.result.summary.at("steps"), 9);
  EXPECT_EQ(run.result.summary.at("early_stop"), false);
  EXPECT_TRUE(run.result.summary.at("validation").at("loss").is_null());
  EXPECT_TRUE(run.result.summary.at("best").is_null());
  EXPECT_EQ(run.events("evaluation").size(), 3U);
  EXPECT_EQ(run.result.summary.at("skipped_samples").at("count"), 8);
}

}  // namespace
}  // namespace dtrain::test
