#include "dtrain/core/optim/weight_average.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/optim/gradient_norm.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/tests/unit/ops_simd/instruction_sets.h"

namespace dtrain {
namespace {

std::vector<float> random(std::size_t n, std::uint64_t seed) {
  RandomSequence numbers{RandomKey(seed)};
  std::vector<float> result(n);
  for (float& value : result) value = static_cast<float>(numbers.normal());
  return result;
}

TEST(WeightAverageTest, FollowsTheFormulaInDouble) {
  for_each_instruction_set([] {
    for (const std::size_t n : {0, 1, 15, 4096, 3 * 4096 + 57}) {
      ThreadPool one(1), three(3);
      std::vector<float> average = random(n, 1);
      std::vector<float> other = average;
      std::vector<double> expected(average.begin(), average.end());
      for (std::uint64_t step = 0; step < 5; ++step) {
        const std::vector<float> values = random(n, 2 + step);
        update_average(average, values, 0.9, one);
        update_average(other, values, 0.9, three);
        for (std::size_t i = 0; i < n; ++i) expected[i] = 0.9 * expected[i] + 0.1 * values[i];
      }
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(average[i], expected[i], 1e-6);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(average[i]), std::bit_cast<std::uint32_t>(other[i]));
      }
    }
  });
}

TEST(GradientNormGroupsTest, EachGroupHasItsOwnSum) {
  const std::vector<float> gradients = random(3 * 4096, 1);
  const std::vector<ParameterRange> ranges = {{0, 10, 1}, {16, 5000, 0}, {6000, 4097, 1}};
  ThreadPool pool(2);
  const SquaredNorms norms = squared_norms(gradients, ranges, 2, pool);
  std::vector<double> expected(2);
  for (const ParameterRange& range : ranges) {
    for (std::int64_t i = range.offset; i < range.offset + range.size; ++i) {
      const double value = gradients[static_cast<std::size_t>(i)];
      expected[static_cast<std::size_t>(range.group)] += value * value;
    }
  }
  ASSERT_EQ(norms.groups.size(), 2U);
  EXPECT_NEAR(norms.groups[0], expected[0], 1e-9 * expected[0]);
  EXPECT_NEAR(norms.groups[1], expected[1], 1e-9 * expected[1]);
  EXPECT_NEAR(norms.all, expected[0] + expected[1], 1e-9 * norms.all);
  EXPECT_EQ(norms.all, squared_norm(gradients, ranges, pool));
}

}  // namespace
}  // namespace dtrain
