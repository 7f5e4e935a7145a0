// The kernel against the same additions done element by element, to the bit.
#include "dtrain/parallel/reduce/tree_kernel.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

std::vector<std::vector<float>> random_arrays(int arrays, std::size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<std::vector<float>> out(arrays, std::vector<float>(count));
  for (auto& array : out) {
    for (float& x : array) x = std::ldexp(mantissa(random), static_cast<int>(random() % 40) - 20);
  }
  return out;
}

class TreeKernelOf : public testing::TestWithParam<int> {};

TEST_P(TreeKernelOf, GivesTheBitsOfPlainAdditions) {
  const int inputs = GetParam();
  const SumTree tree(inputs);
  const std::vector<Addition> order = additions(tree, [&] {
    std::vector<Node> leaves;
    for (int i = 0; i < inputs; ++i) leaves.push_back({0, i});
    return leaves;
  }());
  const TreeKernel kernel(inputs, order);
  for (const std::size_t count : {0, 1, 15, 16, 17, 1024, 4097}) {
    auto arrays = random_arrays(inputs, count + 3);
    auto expected = arrays;
    for (const Addition& a : order) {
      for (std::size_t i = 0; i < expected[0].size(); ++i) {
        expected[a.into][i] += expected[a.from][i];
      }
    }
    for (const auto writes : {TreeKernel::Writes::cached, TreeKernel::Writes::streaming}) {
      for (const int outputs : {1, 2, 3, 4}) {
        for (const std::size_t shift : {0, 3}) {
          auto work = arrays;
          // The first output is the first input, as in an arena; the others lie apart.
          std::vector<std::vector<float>> others(outputs - 1, std::vector<float>(count + 4, -1.f));
          std::vector<const float*> in;
          for (const auto& array : work) in.push_back(array.data() + shift);
          std::vector<float*> out{work[0].data() + shift};
          for (auto& other : others) out.push_back(other.data() + shift);
          kernel.run(in, out, count, writes);
          for (float* result : out) {
            ASSERT_EQ(std::memcmp(result, expected[0].data() + shift, count * sizeof(float)), 0)
                << inputs << " inputs, " << outputs << " outputs, " << count << " floats";
          }
          for (auto& other : others) ASSERT_EQ(other[shift + count], -1.f) << "writes too much";
          ASSERT_EQ(std::memcmp(&work[0][0], &arrays[0][0], shift * sizeof(float)), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, TreeKernelOf, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 13, 32));

TEST(TreeKernel, AddsInTheGivenOrderNotPairwise) {
  // ((a + b) + c) + d: pairwise would lose the ones.
  const TreeKernel kernel(4, {{0, 1}, {0, 2}, {0, 3}});
  const float a = 1e8f, b = -1e8f, c = 1, d = 2;
  const float* in[] = {&a, &b, &c, &d};
  float result = 0;
  float* out[] = {&result};
  kernel.run(in, out, 1);
  EXPECT_EQ(result, 3.f);
  const TreeKernel crossed(4, {{2, 3}, {0, 1}, {0, 2}});
  crossed.run(in, out, 1);
  EXPECT_EQ(result, 3.f);
}

TEST(TreeKernel, RefusesSchedulesThatAreNoTree) {
  EXPECT_THROW(TreeKernel(3, {{0, 1}}), InternalError);
  EXPECT_THROW(TreeKernel(3, {{0, 1}, {0, 1}}), InternalError);
  EXPECT_THROW(TreeKernel(2, {{1, 0}}), InternalError);
  EXPECT_THROW(TreeKernel(2, {{0, 2}}), InternalError);
}

}  // namespace
}  // namespace dtrain
