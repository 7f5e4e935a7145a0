// Losses by name. The formulas are tested with the operators.
#include "dtrain/core/nn/loss.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

class LossTest : public testing::Test {
 protected:
  LossTest() { context_.bind_to_this_thread(); }
  Allocator allocator_{"test"};
  OpContext context_{allocator_, 1};
};

TEST_F(LossTest, CrossEntropyCountsHits) {
  const auto loss = make_loss({.name = "cross_entropy", .ignore_index = -1, .class_weights = {}});
  EXPECT_TRUE(loss->wants_labels());
  std::vector<float> outputs = {0, 0, 9, 0, 0, 0};
  std::vector<std::int64_t> targets = {1, 0, -1};
  const LossReport report = loss->forward(context_, Tensor::wrap(std::span(outputs), {3, 2}),
                                          Tensor::wrap(std::span(targets), {3}));
  EXPECT_EQ(report.top_k.targets, 2);
  EXPECT_EQ(report.top_k.top1, 1);
  EXPECT_EQ(report.sums.weight, 2);
  EXPECT_NEAR(report.sums.loss, std::log(2) + std::log1p(std::exp(-9)), 1e-6);
}

TEST_F(LossTest, OfNumbers) {
  std::vector<float> outputs = {1, -2}, targets = {3, 1};
  const Tensor y = Tensor::wrap(std::span(outputs), {2, 1});
  const Tensor t = Tensor::wrap(std::span(targets), {2, 1});
  const auto mse = make_loss({.name = "mse", .class_weights = {}});
  EXPECT_FALSE(mse->wants_labels());
  const LossReport report = mse->forward(context_, y, t);
  EXPECT_EQ(report.sums.loss, 4 + 9);
  EXPECT_EQ(report.sums.weight, 2);
  EXPECT_EQ(report.top_k.targets, 0);
  const Tensor dy = mse->backward(context_, y, t, 0.5F);
  EXPECT_EQ(dy.values<float>()[0], 2 * (1 - 3) * 0.5F);
  EXPECT_EQ(dy.values<float>()[1], 2 * (-2 - 1) * 0.5F);
  EXPECT_FALSE(make_loss({.name = "bce", .class_weights = {}})->wants_labels());
}

TEST_F(LossTest, AnUnknownNameListsTheKnown) {
  try {
    make_loss({.name = "hinge", .class_weights = {}});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "loss.name: 'hinge' is not one of cross_entropy, mse, bce");
  }
}

}  // namespace
}  // namespace dtrain
