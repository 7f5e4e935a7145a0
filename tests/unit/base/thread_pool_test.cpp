#include "dtrain/core/base/thread_pool.h"

#include <atomic>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

TEST(ThreadPool, EveryIndexOnceForAnyCountAndTeam) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (std::int64_t count : {0, 1, 2, 3, 7, 8, 9, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](std::int64_t first, std::int64_t last) {
        ASSERT_LT(first, last);
        for (std::int64_t i = first; i < last; ++i) ++times[static_cast<std::size_t>(i)];
      });
      for (const auto& t : times) ASSERT_EQ(t, 1) << threads << " threads, count " << count;
    }
  }
}

TEST(ThreadPool, PoolOfOneRunsInTheCaller) {
  ThreadPool pool(1);
  std::thread::id id;
  pool.parallel_for(10, [&](std::int64_t first, std::int64_t last) {
    id = std::this_thread::get_id();
    EXPECT_EQ(last - first, 10);
  });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ThreadPool, ExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(4);
  for (std::int64_t bad : {0, 3}) {  // in the caller's range, and in another's
    EXPECT_THROW(pool.parallel_for(4,
                                   [bad](std::int64_t first, std::int64_t last) {
                                     if (bad >= first && bad < last) throw std::out_of_range("x");
                                   }),
                 std::out_of_range);
  }
  std::atomic<std::int64_t> sum = 0;
  pool.parallel_for(100, [&](std::int64_t first, std::int64_t last) { sum += last - first; });
  EXPECT_EQ(sum, 100);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> sum = 0;
  for (int i = 0; i < 2000; ++i) {
    pool.parallel_for(2, [&](std::int64_t first, std::int64_t last) { sum += last - first; });
  }
  EXPECT_EQ(sum, 4000);
}

TEST(ThreadPool, TeamOfNoneIsABug) {
  EXPECT_THROW(ThreadPool(0), InternalError);
}

}  // namespace
}  // namespace dtrain
