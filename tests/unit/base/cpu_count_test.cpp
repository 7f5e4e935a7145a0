#include "dtrain/core/base/cpu_count.h"

#include <sched.h>
#include <thread>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(CpuCount, QuotaText) {
  EXPECT_EQ(quota_from_cpu_max("200000 100000"), 2);
  EXPECT_EQ(quota_from_cpu_max("150000 100000\n"), 1.5);
  for (const char* none :
       {"max 100000", "-1 100000", "0 100000", "100000 0", "100000", "", "x y"}) {
    EXPECT_EQ(quota_from_cpu_max(none), 0) << none;
  }
}

TEST(CpuCount, IsWithinTheMask) {
  const CpuCount count = cpu_count();
  EXPECT_GE(count.usable, 1);
  EXPECT_LE(count.usable, count.affinity);
  EXPECT_GE(count.quota, 0);
}

TEST(CpuCount, FollowsAffinity) {
  // In a thread of its own: the mask is the thread's.
  std::thread([] {
    cpu_set_t all, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(cpu_count().affinity, 1);
    EXPECT_EQ(cpu_count().usable, 1);
  }).join();
}

}  // namespace
}  // namespace dtrain
