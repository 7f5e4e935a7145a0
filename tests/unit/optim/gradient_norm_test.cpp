#include "dtrain/core/optim/gradient_norm.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/reduce.h"
#include "dtrain/core/random/philox.h"

namespace dtrain {
namespace {

TEST(SquaredNormTest, AddsTheBlocksOfEachParameterInOrder) {
  RandomSequence numbers{RandomKey(1)};
  std::vector<float> gradients(20000);
  for (float& value : gradients) value = static_cast<float>(numbers.normal());
  // The gap between the parameters is padding.
  const std::vector<ParameterRange> parameters = {{0, 5000}, {5008, 4096}, {9200, 10}, {9300, 0}};
  const auto block = [&](std::size_t offset, std::size_t size) {
    return ops::block_sum_of_squares(std::span<const float>(gradients).subspan(offset, size));
  };
  const double expected = block(0, 4096) + block(4096, 904) + block(5008, 4096) + block(9200, 10);
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(squared_norm(gradients, parameters, pool), expected) << threads;
  }
}

TEST(SquaredNormTest, IsThatOfTheValues) {
  ThreadPool pool(1);
  const std::vector<float> gradients = {3, 100, 4};
  const std::vector<ParameterRange> parameters = {{0, 1}, {2, 1}};
  EXPECT_EQ(squared_norm(gradients, parameters, pool), 25);
  EXPECT_EQ(squared_norm(gradients, {}, pool), 0);
}

TEST(SquaredNormTest, ShowsWhatIsNotFinite) {
  ThreadPool pool(2);
  std::vector<float> gradients(10000, 1);
  const std::vector<ParameterRange> parameters = {{0, 10000}};
  gradients[9999] = NAN;
  EXPECT_TRUE(std::isnan(squared_norm(gradients, parameters, pool)));
  gradients[9999] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(squared_norm(gradients, parameters, pool)));
}

TEST(SquaredNormTest, ChecksItsParameters) {
  ThreadPool pool(1);
  const std::vector<float> gradients(10);
  const std::vector<ParameterRange> outside = {{5, 6}};
  EXPECT_THROW(squared_norm(gradients, outside, pool), InternalError);
}

TEST(ClipCoefficientTest, ScalesDownToTheLimitAndNeverUp) {
  EXPECT_EQ(clip_coefficient(9, 1), static_cast<float>(1 / 9.000001));
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_EQ(clip_coefficient(0, 1), 1);
  EXPECT_EQ(clip_coefficient(1, 1), static_cast<float>(1 / 1.000001));
  EXPECT_EQ(clip_coefficient(1e9, 0), 1);
  EXPECT_TRUE(std::isnan(clip_coefficient(NAN, 1)));
  EXPECT_EQ(clip_coefficient(std::numeric_limits<double>::infinity(), 1), 0);
}

}  // namespace
}  // namespace dtrain
