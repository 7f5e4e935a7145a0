#include "dtrain/core/metrics/metric.h"

#include <cmath>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(MetricSums, SmallLastBatchWeighsByItsSamples) {
  // Three samples in batches of two, batch means 10 and 9: not 9.5.
  MetricSums epoch;
  epoch += {.loss = 20, .loss_weight = 2, .samples = 2, .correct = 1, .targets = 2};
  epoch += {.loss = 9, .loss_weight = 1, .samples = 1, .correct = 1, .targets = 1};
  EXPECT_EQ(epoch.mean_loss(), 29.0 / 3);
  EXPECT_EQ(epoch.accuracy(), 2.0 / 3);
  EXPECT_EQ(epoch.samples, 3);
}

TEST(MetricSums, UnequalSharesOfRanks) {
  MetricSums all;
  all += {.samples = 3, .correct = 3, .correct5 = 3, .targets = 3};
  all += {.samples = 2, .correct = 0, .correct5 = 1, .targets = 2};
  EXPECT_EQ(all.accuracy(), 0.6);
  EXPECT_EQ(all.accuracy5(), 0.8);
  MetricSums tokens;
  tokens += {.loss = 4, .loss_weight = 1};
  tokens += {.loss = 6, .loss_weight = 3};
  EXPECT_EQ(tokens.perplexity(), std::exp(2.5));
  EXPECT_NEAR(tokens.perplexity(), 12.182, 1e-3);
  // 2.5 nats a token; tokens of 4 bytes.
  EXPECT_NEAR(tokens.bits_per_byte(4), 2.5 / std::log(2.0) / 4, 1e-15);
}

TEST(MetricSums, NothingCountedIsZeroNotNaN) {
  const MetricSums none;
  EXPECT_EQ(none.mean_loss(), 0);
  EXPECT_EQ(none.accuracy(), 0);
  EXPECT_EQ(none.accuracy5(), 0);
}

}  // namespace
}  // namespace dtrain
