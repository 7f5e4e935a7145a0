#include "dtrain/core/random/philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers of the authors' Random123 for philox4x32-10.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKeyTest, BlockPutsKeyAndCounterWhereTheKnownAnswersHaveThem) {
  EXPECT_EQ(RandomKey(0x299f31d0a4093822).block(0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKeyTest, ForksDiffer) {
  const RandomKey key(42);
  std::set<std::uint64_t> seen = {key.bits()};
  std::size_t count = 1;
  for (std::uint64_t a = 0; a < 50; ++a) {
    for (std::uint64_t b = 0; b < 50; ++b, ++count) seen.insert(key.fork(a, b).bits());
  }
  EXPECT_EQ(seen.size(), count);
  EXPECT_NE(key.fork(1, 2).bits(), key.fork(1).fork(2).bits());
  EXPECT_EQ(key.fork(RandomPurpose::dropout, 3).bits(), key.fork(4, 3).bits());
  EXPECT_NE(key.fork(1, 2).bits(), RandomKey(43).fork(1, 2).bits());
}

// A fork's key must not be among the numbers that its parent gives out.
TEST(RandomKeyTest, ForksAreNoNumbersOfTheirParent) {
  const RandomKey key(42);
  const Words words = key.block(1, 2);
  EXPECT_NE(key.fork(1, 2).bits(), std::uint64_t{words[1]} << 32 | words[0]);
}

TEST(RandomSequenceTest, GivesTheWordsOfItsStreamInOrder) {
  const RandomKey key(7);
  RandomSequence numbers(key, 9);
  for (std::uint64_t counter = 0; counter < 3; ++counter) {
    for (const std::uint32_t word : key.block(9, counter)) EXPECT_EQ(numbers.next_u32(), word);
  }
}

TEST(RandomSequenceTest, UnitFloatCoversTheUnitInterval) {
  EXPECT_EQ(unit_float(0), 0.0F);
  EXPECT_EQ(unit_float(0xFFFFFFFF), 1 - 0x1p-24F);
  EXPECT_EQ(unit_float(0x80000000), 0.5F);
}

// Chi-squared over 64 cells of 64,000 numbers; 63 degrees of freedom exceed 130 once in a million.
void expect_uniform(const std::vector<double>& numbers) {
  std::vector<int> cells(64);
  for (const double x : numbers) {
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++cells[static_cast<std::size_t>(x * 64)];
  }
  const double expected = static_cast<double>(numbers.size()) / 64;
  double chi = 0;
  for (const int n : cells) chi += (n - expected) * (n - expected) / expected;
  EXPECT_LT(chi, 130);
  EXPECT_GT(chi, 20);  // too even is not random either
}

TEST(RandomSequenceTest, UniformNumbersAreUniform) {
  RandomSequence numbers(RandomKey(1));
  std::vector<double> floats, doubles;
  for (int i = 0; i < 64000; ++i) {
    floats.push_back(numbers.uniform());
    doubles.push_back(numbers.uniform_double());
  }
  expect_uniform(floats);
  expect_uniform(doubles);
}

TEST(RandomSequenceTest, WordsAreUniformAcrossCountersAndPositions) {
  const RandomKey key(3);
  std::vector<double> by_counter, by_position;
  for (std::uint64_t i = 0; i < 64000; ++i) {
    by_counter.push_back(unit_float(key.block(5, i)[2]));
    by_position.push_back(unit_float(key.block(i, 5)[1]));
  }
  expect_uniform(by_counter);
  expect_uniform(by_position);
}

TEST(RandomSequenceTest, UniformKeepsItsBounds) {
  RandomSequence numbers(RandomKey(2));
  double least = 5, most = -5;
  for (int i = 0; i < 10000; ++i) {
    const double x = numbers.uniform(-2, 3);
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_GE(least, -2);
  EXPECT_LT(least, -1.99);
  EXPECT_LT(most, 3);
  EXPECT_GT(most, 2.99);
}

TEST(RandomSequenceTest, NormalNumbersHaveTheirMoments) {
  RandomSequence numbers(RandomKey(4));
  const int n = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = numbers.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Five standard deviations of each mean.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96.0 / n));
}

TEST(RandomSequenceTest, BelowKeepsItsBoundsAndReachesAll) {
  RandomSequence numbers(RandomKey(5));
  for (const std::uint64_t n : {1, 2, 3, 7, 10}) {
    std::vector<int> seen(n);
    for (int i = 0; i < 7000; ++i) {
      const std::uint64_t value = numbers.below(n);
      ASSERT_LT(value, n);
      ++seen[value];
    }
    for (const int count : seen) {
      EXPECT_NEAR(count, 7000.0 / static_cast<double>(n), 6 * std::sqrt(7000.0 / 4)) << n;
    }
  }
}

// With 3 * 2^62 values a plain remainder would give the lowest 2^62 twice as often.
TEST(RandomSequenceTest, BelowHasNoBiasForLargeBounds) {
  RandomSequence numbers(RandomKey(6));
  const std::uint64_t n = (std::uint64_t{3} << 62);
  int low = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::uint64_t value = numbers.below(n);
    ASSERT_LT(value, n);
    low += value < std::uint64_t{1} << 62;
  }
  EXPECT_NEAR(low, 10000, 5 * std::sqrt(30000 * 2.0 / 9));
  for (int i = 0; i < 100; ++i) EXPECT_LT(numbers.below(~std::uint64_t{0}), ~std::uint64_t{0});
}

}  // namespace
}  // namespace dtrain
