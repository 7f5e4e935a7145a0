// The order of micro-batches: numbers and items are inverse, and only those with samples count.
#include "dtrain/data/load_order.h"

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain::test {
namespace {

BatchPlan plan_of(std::int64_t samples, std::int64_t micro, std::int64_t accumulate,
                  std::int64_t virtual_ranks) {
  return {.samples = samples,
          .global = micro * accumulate * virtual_ranks,
          .micro = micro,
          .accumulate = accumulate,
          .virtual_ranks = virtual_ranks};
}

// Against the loops that lanes run.
std::vector<LoadItem> walk(const LoadRequest& request) {
  std::vector<LoadItem> items;
  for (std::int64_t e = request.epoch; e < request.last_epoch; ++e) {
    const std::int64_t first = e == request.epoch ? request.batch_in_epoch : 0;
    for (std::int64_t b = first; b < request.plan.batches_per_epoch(); ++b) {
      for (std::int64_t w = request.first_virtual_rank; w < request.last_virtual_rank;
           w += request.lanes) {
        for (std::int64_t m = 0; m < request.plan.accumulate; ++m) {
          for (std::int64_t v = w; v < std::min(w + request.lanes, request.last_virtual_rank);
               ++v) {
            if (request.plan.micro_batch(b, v, m).size() > 0) items.push_back({e, b, v, m});
          }
        }
      }
    }
  }
  return items;
}

TEST(LoadOrder, IsThatOfTheLanesWithoutEmptyMicroBatches) {
  std::int64_t compared = 0;
  for (std::int64_t samples = 1; samples <= 50; ++samples) {
    for (const auto& [first, last] : {std::pair{0, 4}, {0, 1}, {1, 4}, {3, 4}}) {
      for (int lanes = 1; lanes <= 3; ++lanes) {
        for (const std::int64_t skipped : {0, 1}) {
          const LoadRequest request{.plan = plan_of(samples, 2, 3, 4),
                                    .epoch = 5,
                                    .batch_in_epoch = skipped,
                                    .last_epoch = 7,
                                    .first_virtual_rank = first,
                                    .last_virtual_rank = last,
                                    .lanes = lanes};
          const LoadOrder order(request);
          const std::vector<LoadItem> expected = walk(request);
          ASSERT_EQ(order.size(), static_cast<std::int64_t>(expected.size()));
          for (std::int64_t n = 0; n < order.size(); ++n) {
            ASSERT_EQ(order.item(n), expected[n]) << samples << " " << first << " " << n;
            ASSERT_EQ(order.number(expected[n]), n);
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 10000);
}

TEST(LoadOrder, EmptyMicroBatchesHaveNoNumber) {
  const LoadOrder order({.plan = plan_of(5, 1, 1LL << 28, 8), .last_virtual_rank = 8, .lanes = 2});
  EXPECT_EQ(order.item(4), (LoadItem{0, 0, 0, 4}));
  EXPECT_EQ(order.item(5), (LoadItem{1, 0, 0, 0}));
  EXPECT_THROW(order.number({0, 0, 1, 0}), InternalError);
  const LoadOrder idle({.plan = plan_of(5, 1, 1LL << 28, 8),
                        .first_virtual_rank = 4,
                        .last_virtual_rank = 8,
                        .lanes = 2});
  EXPECT_EQ(idle.size(), 0);
}

}  // namespace
}  // namespace dtrain::test
