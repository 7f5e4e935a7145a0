#include "dtrain/core/checkpoint/retention.h"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

using Steps = std::vector<std::int64_t>;

std::vector<RetainedStep> steps(std::initializer_list<std::int64_t> numbers) {
  std::vector<RetainedStep> own;
  for (std::int64_t step : numbers) own.push_back({step, std::nullopt});
  return own;
}

TEST(Retention, KeepsTheLastInNumericOrder) {
  EXPECT_EQ(steps_to_remove(steps({10, 9, 100, 20}), 100, 2, 0), (Steps{9, 10}));
  EXPECT_EQ(steps_to_remove(steps({10, 20, 30}), 30, 3, 0), Steps{});
  EXPECT_EQ(steps_to_remove(steps({10, 20, 30}), 30, 1, 0), (Steps{10, 20}));
}

TEST(Retention, KeepsTheBestOfEqualOnesTheEarlier) {
  const std::vector<RetainedStep> own = {{10, 0.5}, {20, 0.25}, {30, 0.25}, {40, 0.75}, {50, {}}};
  EXPECT_EQ(steps_to_remove(own, 50, 1, 1), (Steps{10, 30, 40}));
  EXPECT_EQ(steps_to_remove(own, 50, 1, 2), (Steps{10, 40}));
  EXPECT_EQ(steps_to_remove(own, 50, 1, 3), (Steps{40}));
  EXPECT_EQ(steps_to_remove(own, 50, 1, 99), Steps{});  // 50 has no loss, and is the newest
  EXPECT_EQ(steps_to_remove(own, 50, 2, 0), (Steps{10, 20, 30}));
}

TEST(Retention, TheSavedOneStaysAndLaterOnesAreLeft) {
  // The run went back to 10 and has just saved 15 again: 900 and 1000 lie ahead of it.
  EXPECT_EQ(steps_to_remove(steps({5, 10, 15, 900, 1000}), 15, 1, 0), (Steps{5, 10}));
}

TEST(Retention, MakesGoodWhatACrashLeft) {
  EXPECT_EQ(steps_to_remove(steps({1, 2, 3, 4, 5, 6}), 6, 2, 0), (Steps{1, 2, 3, 4}));
}

}  // namespace
}  // namespace dtrain
