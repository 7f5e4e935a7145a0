// How a batch is cut: positions by slot and micro-batch, also in a short last batch.
#include "dtrain/data/batch_plan.h"

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain::test {
namespace {

// 20 samples by 8: two full batches and one of 4.
constexpr BatchPlan plan{
    .samples = 20, .global = 8, .micro = 2, .accumulate = 2, .virtual_ranks = 2};

TEST(BatchPlan, CountsBatchesAndTheShortLastOne) {
  EXPECT_EQ(plan.batches_per_epoch(), 3);
  EXPECT_EQ(plan.batch_size(0), 8);
  EXPECT_EQ(plan.batch_size(2), 4);
  EXPECT_THROW(plan.batch_size(3), InternalError);
  EXPECT_THROW(plan.batch_size(-1), InternalError);
}

TEST(BatchPlan, SlotsAreContiguousAndLaterOnesRunEmpty) {
  EXPECT_EQ(plan.micro_batch(0, 0, 0), (PositionRange{0, 2}));
  EXPECT_EQ(plan.micro_batch(0, 0, 1), (PositionRange{2, 4}));
  EXPECT_EQ(plan.micro_batch(0, 1, 0), (PositionRange{4, 6}));
  EXPECT_EQ(plan.micro_batch(0, 1, 1), (PositionRange{6, 8}));
  EXPECT_EQ(plan.micro_batch(2, 0, 1), (PositionRange{2, 4}));
  EXPECT_EQ(plan.micro_batch(2, 1, 0).size(), 0);
  EXPECT_EQ(plan.micro_batch(2, 1, 1).size(), 0);
  EXPECT_THROW(plan.micro_batch(0, 2, 0), InternalError);
  EXPECT_THROW(plan.micro_batch(0, 0, 2), InternalError);
}

// Seven samples, one at a time, four to a batch: the last batch has three.
TEST(BatchPlan, AMicroBatchMayBeCut) {
  constexpr BatchPlan seven{
      .samples = 7, .global = 4, .micro = 4, .accumulate = 1, .virtual_ranks = 1};
  EXPECT_EQ(seven.batches_per_epoch(), 2);
  EXPECT_EQ(seven.micro_batch(1, 0, 0), (PositionRange{0, 3}));
}

TEST(BatchPlan, EveryPositionHasOnePlace) {
  for (std::int64_t samples = 1; samples <= 50; ++samples) {
    const BatchPlan p{
        .samples = samples, .global = 18, .micro = 3, .accumulate = 2, .virtual_ranks = 3};
    std::int64_t total = 0;
    for (std::int64_t b = 0; b < p.batches_per_epoch(); ++b) {
      std::int64_t expected = 0;
      for (std::int64_t v = 0; v < 3; ++v) {
        for (std::int64_t m = 0; m < 2; ++m) {
          const PositionRange range = p.micro_batch(b, v, m);
          if (range.size() == 0) continue;
          EXPECT_EQ(range.first, expected);
          expected = range.last;
        }
      }
      EXPECT_EQ(expected, p.batch_size(b));
      total += expected;
    }
    EXPECT_EQ(total, samples);
  }
}

}  // namespace
}  // namespace dtrain::test
