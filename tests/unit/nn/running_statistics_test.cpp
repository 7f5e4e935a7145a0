// Running mean and variance: what a pass adds, and what a step makes of it.
#include <cmath>
#include <memory>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

namespace dtrain {
namespace {

class Normed final : public Module {
 public:
  explicit Normed(std::int64_t channels, float momentum = 0.1F)
      : norm_(add<BatchNorm>("norm", channels, BatchNorm::Options{.momentum = momentum})) {}
  Value forward(Pass& pass, const Value& x) const override { return norm_.forward(pass, x); }

 private:
  const BatchNorm& norm_;
};

class RunningStatisticsTest : public testing::Test {
 protected:
  void make(std::int64_t channels, float momentum = 0.1F) {
    model_ = std::make_unique<Normed>(channels, momentum);
    layout_ = std::make_unique<ArenaLayout>(*model_);
    arena_ = std::make_unique<ParameterArena>(*layout_);
    initialize(*arena_, RandomKey(1));
    gradients_.assign(static_cast<std::size_t>(layout_->gradient_elements()), 123.0F);
  }
  // Forward in training; x: [N, C].
  void forward(std::vector<float> values, const Shape& shape, bool accumulate) {
    context_.bind_to_this_thread();
    Pass pass(context_,
              {.weights = std::as_const(*arena_).weights(),
               .buffers = std::as_const(*arena_).buffers(),
               .gradients = gradients_,
               .parameters = layout_->parameters()},
              {.accumulate = accumulate});
    model_->forward(pass, pass.input(Tensor::wrap(std::span(values), shape)));
  }
  const float* sums() const { return gradients_.data() + layout_->statistics()[0]->sums_offset; }
  std::span<float> mean() { return arena_->buffer(*layout_->buffers()[0]); }
  std::span<float> variance() { return arena_->buffer(*layout_->buffers()[1]); }

  std::unique_ptr<Normed> model_;
  std::unique_ptr<ArenaLayout> layout_;
  std::unique_ptr<ParameterArena> arena_;
  std::vector<float> gradients_;
  Allocator allocator_{"test"};
  OpContext context_{allocator_, 1};
};

TEST_F(RunningStatisticsTest, APassAddsCountsAndNeverTouchesBuffers) {
  make(2);
  // Channel 0: 0, 0, 0, 4: mean 1, unbiased variance 4. Channel 1: 2, 2, 4, 4: mean 3, variance
  // 4/3.
  forward({0, 2, 0, 2, 0, 4, 4, 4}, {4, 2}, false);
  EXPECT_EQ(sums()[0], 4);
  EXPECT_EQ(sums()[1], 4);
  EXPECT_EQ(sums()[2], 12);
  EXPECT_EQ(sums()[3], 16);
  EXPECT_NEAR(sums()[4], 16.0 / 3, 1e-5);
  EXPECT_EQ(mean()[0], 0);
  EXPECT_EQ(variance()[0], 1);
  // A second micro-batch adds to the sums, a new first one begins anew.
  forward({1, 0, 3, 0}, {2, 2}, true);
  EXPECT_EQ(sums()[0], 6);
  EXPECT_EQ(sums()[1], 4 + 4);
  EXPECT_EQ(sums()[3], 16 + 2 * 2);
  forward({1, 0, 3, 0}, {2, 2}, false);
  EXPECT_EQ(sums()[0], 2);
  EXPECT_EQ(sums()[1], 4);
}

TEST_F(RunningStatisticsTest, ImagesCountEveryPlace) {
  make(1);
  forward({0, 0, 0, 4, 0, 0, 0, 4}, {2, 2, 2, 1}, false);
  EXPECT_EQ(sums()[0], 8);
  EXPECT_EQ(sums()[1], 8);
  EXPECT_NEAR(sums()[2], 8 * (24.0 / 7), 1e-4);
}

TEST_F(RunningStatisticsTest, AStepMovesThemOnceByTheMomentum) {
  make(1);
  forward({0, 0, 0, 4}, {4, 1}, false);
  forward({0, 0, 0, 4}, {4, 1}, true);
  update_running_statistics(*arena_, gradients_);
  // Once, however many micro-batches: 0.9 * 0 + 0.1 * 1 and 0.9 * 1 + 0.1 * 4.
  EXPECT_FLOAT_EQ(mean()[0], 0.1F);
  EXPECT_FLOAT_EQ(variance()[0], 1.3F);
  update_running_statistics(*arena_, gradients_);
  EXPECT_FLOAT_EQ(mean()[0], 0.19F);
  EXPECT_FLOAT_EQ(variance()[0], 1.57F);
}

// As with PyTorch's buffers after micro-batches of unequal size, weighted by their counts.
TEST_F(RunningStatisticsTest, MicroBatchesWeighByTheirCount) {
  make(1, 1.0F);
  forward({0, 0, 0, 4}, {4, 1}, false);
  forward({1, 3}, {2, 1}, true);
  update_running_statistics(*arena_, gradients_);
  EXPECT_FLOAT_EQ(mean()[0], (4 * 1 + 2 * 2) / 6.0F);
  EXPECT_FLOAT_EQ(variance()[0], (4 * 4 + 2 * 2) / 6.0F);
}

TEST_F(RunningStatisticsTest, ALayerThatTookNoPartStays) {
  make(1);
  gradients_.assign(gradients_.size(), 0.0F);
  update_running_statistics(*arena_, gradients_);
  EXPECT_EQ(mean()[0], 0);
  EXPECT_EQ(variance()[0], 1);
}

TEST_F(RunningStatisticsTest, EvaluationUsesThem) {
  make(1);
  mean()[0] = 2;
  variance()[0] = 4 - 1e-5F;
  context_.bind_to_this_thread();
  Pass pass(context_,
            {.weights = std::as_const(*arena_).weights(),
             .buffers = std::as_const(*arena_).buffers(),
             .gradients = {},
             .parameters = layout_->parameters()},
            {.training = false});
  std::vector<float> x = {2, 6};
  const Value y = model_->forward(pass, pass.input(Tensor::wrap(std::span(x), {2, 1})));
  EXPECT_NEAR(y.tensor.values<float>()[0], 0, 1e-6);
  EXPECT_NEAR(y.tensor.values<float>()[1], 2, 1e-5);
}

}  // namespace
}  // namespace dtrain
