#include "dtrain/core/base/clock.h"

#include <cmath>
#include <regex>
#include <thread>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(Deadline, DefaultNeverPasses) {
  const Deadline never;
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.left(), INFINITY);
}

TEST(Deadline, PassesAndStaysPassed) {
  const Deadline now(0);
  EXPECT_TRUE(now.passed());
  EXPECT_EQ(now.left(), 0);
  const Deadline past(-5);
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.left(), 0);
}

TEST(Deadline, CountsDown) {
  const Deadline later(1000);
  EXPECT_FALSE(later.passed());
  EXPECT_LE(later.left(), 1000);
  EXPECT_GT(later.left(), 900);
  const Deadline soon(0.02);
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  EXPECT_TRUE(soon.passed());
}

TEST(Deadline, HugeSecondsNeverPass) {
  // Configurations may say 1e300 for "never": no overflow into the past.
  for (double seconds : {1e10, 1e18, 1e300, double{INFINITY}}) {
    const Deadline deadline(seconds);
    EXPECT_FALSE(deadline.passed()) << seconds;
    EXPECT_GT(deadline.left(), 1e9) << seconds;
  }
}

TEST(Clock, SecondsBetween) {
  const TimePoint from{};
  EXPECT_EQ(seconds_between(from, from + std::chrono::milliseconds(1500)), 1.5);
  EXPECT_GE(seconds_since(Clock::now()), 0);
}

TEST(Clock, UtcNow) {
  EXPECT_TRUE(std::regex_match(utc_now(), std::regex(R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")))
      << utc_now();
}

}  // namespace
}  // namespace dtrain
