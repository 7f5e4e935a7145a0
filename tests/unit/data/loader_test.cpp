// What a loader makes of batches that are far larger than their data.
#include "dtrain/data/loader.h"

#include <memory>

#include <gtest/gtest.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/device/allocator.h"
#include "dtrain/data/glyphs.h"
#include "dtrain/data/subset.h"

namespace dtrain::test {
namespace {

// Walking through 2^31 empty micro-batches would take minutes, and hold up stop() as long.
TEST(Loader, PassesOverEmptyMicroBatchesAtOnce) {
  const auto data = std::make_shared<Subset>(std::make_unique<Glyphs>(1), 0, 4, 1);
  const BatchPlan plan{
      .samples = 4, .global = 2147483647, .micro = 1, .accumulate = 2147483647, .virtual_ranks = 1};
  Loader loader(data, Transforms(), Sampler(4, false, 0), true, {.workers = 1}, Allocator("test"));
  const TimePoint begin = Clock::now();
  loader.start({.plan = plan});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t m = 0; m < 4; ++m) {
      EXPECT_EQ(loader.next(epoch, 0, 0, m).ids, (std::vector<std::int64_t>{m}));
    }
    EXPECT_EQ(loader.next(epoch, 0, 0, 1000000).size(), 0);
  }
  loader.stop();
  EXPECT_LT(seconds_since(begin), 20);
}

}  // namespace
}  // namespace dtrain::test
