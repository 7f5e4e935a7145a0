// The order of an epoch: a permutation, another one in every epoch, without memory per sample.
#include "dtrain/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain::test {
namespace {

std::vector<std::int64_t> order(const Sampler& sampler, std::int64_t epoch) {
  std::vector<std::int64_t> ids;
  for (std::int64_t p = 0; p < sampler.samples(); ++p) ids.push_back(sampler.sample(epoch, p));
  return ids;
}

bool is_permutation_of_all(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  std::vector<std::int64_t> all(ids.size());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return ids == all;
}

// Sum of (seen - expected)^2 / expected.
double chi_square(const std::vector<std::int64_t>& seen, double expected) {
  double sum = 0;
  for (const std::int64_t count : seen) {
    const double difference = static_cast<double>(count) - expected;
    sum += difference * difference / expected;
  }
  return sum;
}

TEST(Sampler, EveryEpochIsAPermutation) {
  for (std::int64_t n = 0; n <= 70; ++n) {
    const Sampler sampler(n, true, 7);
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      EXPECT_TRUE(is_permutation_of_all(order(sampler, epoch))) << n << " " << epoch;
    }
  }
  for (const std::int64_t n : {255, 256, 257, 4095, 4097, 60000}) {
    EXPECT_TRUE(is_permutation_of_all(order(Sampler(n, true, 7), 3))) << n;
  }
}

TEST(Sampler, EpochsAndSeedsDifferAndRepeatThemselves) {
  const Sampler sampler(22, true, 7);
  const auto first = order(sampler, 0);
  EXPECT_NE(first, order(sampler, 1));
  EXPECT_NE(first, order(sampler, 2));
  EXPECT_NE(order(sampler, 1), order(sampler, 2));
  EXPECT_EQ(first, order(Sampler(22, true, 7), 0));
  EXPECT_NE(first, order(Sampler(22, true, 8), 0));
  std::vector<std::int64_t> sorted(22);
  std::iota(sorted.begin(), sorted.end(), std::int64_t{0});
  EXPECT_NE(first, sorted);
}

// The order decides the bits of trained weights, so it must not change by itself.
TEST(Sampler, OrderIsFixedForEver) {
  EXPECT_EQ(order(Sampler(10, true, 7), 0),
            (std::vector<std::int64_t>{5, 0, 2, 8, 1, 3, 6, 9, 4, 7}));
}

TEST(Sampler, WithoutShufflingPositionsAreIds) {
  const Sampler sampler(5, false, 7);
  EXPECT_EQ(order(sampler, 0), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(order(sampler, 9), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

// A network of few bits could favour some places. Seen counts of a fair shuffle have a chi-square
// around its degrees of freedom f, with a standard deviation of sqrt(2 f).
TEST(Sampler, SmallSetsAreMixedWell) {
  for (const std::int64_t n : {2, 3, 4, 5, 16, 17, 22}) {
    const Sampler sampler(n, true, 1);
    const std::int64_t epochs = 200 * n;
    std::vector<std::int64_t> place(static_cast<std::size_t>(n * n));   // position x sample
    std::vector<std::int64_t> follow(static_cast<std::size_t>(n * n));  // sample x its follower
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto ids = order(sampler, epoch);
      for (std::int64_t p = 0; p < n; ++p) {
        const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(p)]);
        ++place[static_cast<std::size_t>(p * n) + id];
        if (p + 1 < n) {
          ++follow[id * static_cast<std::size_t>(n) +
                   static_cast<std::size_t>(ids[static_cast<std::size_t>(p + 1)])];
        }
      }
    }
    const auto freedom = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(chi_square(place, 200), freedom + 4 * std::sqrt(2 * freedom)) << n;
    // n - 1 neighbours an epoch, over n (n - 1) pairs.
    std::vector<std::int64_t> pairs;
    for (std::int64_t i = 0; i < n * n; ++i) {
      if (i / n != i % n) pairs.push_back(follow[static_cast<std::size_t>(i)]);
    }
    EXPECT_LT(chi_square(pairs, 200), static_cast<double>(n * n) + 4 * std::sqrt(2.0) * n) << n;
  }
}

TEST(Sampler, AllOrdersOfFourAreAboutAsFrequent) {
  std::map<std::vector<std::int64_t>, std::int64_t> seen;
  const Sampler sampler(4, true, 1);
  for (std::int64_t epoch = 0; epoch < 4800; ++epoch) ++seen[order(sampler, epoch)];
  ASSERT_EQ(seen.size(), 24u);
  std::vector<std::int64_t> counts;
  for (const auto& [ids, count] : seen) counts.push_back(count);
  EXPECT_LT(chi_square(counts, 200), 23 + 4 * std::sqrt(2.0 * 23));
}

// Each position on its own: nothing is built for 50 million samples, wherever one begins.
TEST(Sampler, LargeSetsBeginAnywhereAtOnce) {
  const Sampler sampler(50'000'000, true, 3);
  EXPECT_LE(sizeof sampler, 64u);
  std::unordered_set<std::int64_t> ids;
  for (std::int64_t p = 45'000'000; p < 45'010'000; ++p) {
    const std::int64_t id = sampler.sample(2, p);
    ASSERT_TRUE(id >= 0 && id < sampler.samples());
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 10'000u);
  const Sampler most(std::int64_t{1} << 48, true, 3);
  EXPECT_LT(most.sample(0, (std::int64_t{1} << 48) - 1), std::int64_t{1} << 48);
}

TEST(Sampler, NoPositionIsOutside) {
  EXPECT_THROW(Sampler(0, true, 1).sample(0, 0), InternalError);
  EXPECT_THROW(Sampler(3, true, 1).sample(0, 3), InternalError);
  EXPECT_THROW(Sampler(3, true, 1).sample(0, -1), InternalError);
  EXPECT_EQ(Sampler(1, true, 1).sample(5, 0), 0);
}

}  // namespace
}  // namespace dtrain::test
