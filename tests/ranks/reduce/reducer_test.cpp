// Gradients of virtual ranks, in lanes of ranks as threads, summed bucket by bucket.
#include "dtrain/parallel/reduce/reducer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/local/run_ranks.h"

namespace dtrain {
namespace {

struct Placement {
  std::int64_t virtual_ranks = 1;
  int ranks = 1;
  int lanes = 1;
};

std::string to_string(const Placement& p) {
  return fmt::format("V {}, R {}, L {}", p.virtual_ranks, p.ranks, p.lanes);
}

// One step of one rank: every lane writes its virtual rank's values and finishes its parameters in
// an order of its own, with pauses of its own.
class Worker {
 public:
  Worker(Communicator& comm, Reducer& reducer, const Model& model, int lanes)
      : comm_(comm), reducer_(reducer), model_(model), pool_(lanes) {}

  // Changes what a lane has written, before it finishes anything.
  std::function<void(std::int64_t v, std::span<float> gradients)> spoil;
  int slow_rank = -1;

  void step(std::int64_t step) {
    reducer_.begin_step();
    for (int wave = 0; wave < reducer_.waves(); ++wave) {
      const VirtualRange range = reducer_.wave_range(wave);
      pool_.parallel_for(range.size(), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t lane = first; lane < last; ++lane) run_lane(step, wave, range, lane);
      });
      reducer_.end_wave(wave, pool_);
    }
    reducer_.wait();
  }

 private:
  void run_lane(std::int64_t step, int wave, VirtualRange range, std::int64_t lane) {
    const std::int64_t v = range.first + lane;
    const std::span<float> gradients = reducer_.slot(wave, static_cast<int>(lane));
    const auto elements = static_cast<std::size_t>(model_.layout.gradient_elements());
    for (std::size_t i = 0; i < elements; ++i) {
      const float value = value_of(step, v, i);
      if (reducer_.accumulates(wave)) {
        gradients[i] += value;
      } else {
        gradients[i] = value;
      }
    }
    if (spoil) spoil(v, gradients);
    if (!reducer_.last_wave(wave)) return;
    std::mt19937 random(static_cast<unsigned>(step * 1000 + v * 10 + comm_.rank()));
    std::vector<int> order(model_.layout.parameters().size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::ranges::shuffle(order, random);
    for (const int parameter : order) {
      if (comm_.rank() == slow_rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (random() % 4 == 0) std::this_thread::yield();
      reducer_.finished(parameter);
    }
  }

  Communicator& comm_;
  Reducer& reducer_;
  const Model& model_;
  ThreadPool pool_;
};

const std::vector<std::int64_t> sizes = {300, 7, 1000, 64, 1, 2000, 500, 16};

void check(const Placement& p, Reduction reduction, int slow_rank = -1) {
  const Model model(sizes);
  const BucketPlan plan = make_bucket_plan(model.layout, 2048);
  ASSERT_GE(plan.buckets.size(), 4U);
  const auto elements = static_cast<std::size_t>(model.layout.gradient_elements());
  run_ranks(p.ranks, [&](Communicator& comm) {
    Reducer reducer(comm, model.layout, plan, p.virtual_ranks, p.lanes, reduction);
    EXPECT_EQ(reducer.range(), virtual_range(p.virtual_ranks, comm.rank(), p.ranks));
    Worker worker(comm, reducer, model, p.lanes);
    worker.slow_rank = slow_rank;
    for (std::int64_t step = 0; step < 3; ++step) {
      worker.step(step);
      ASSERT_TRUE(reducer.finite());
      ASSERT_GE(reducer.exposed_seconds(), 0);
      const std::span<const float> sum = reducer.gradients();
      for (std::size_t i = 0; i < elements; ++i) {
        if (reduction == Reduction::reproducible) {
          ASSERT_EQ(sum[i], tree_reference(step, p.virtual_ranks, i))
              << to_string(p) << ", rank " << comm.rank() << ", step " << step << ", element " << i;
        } else {
          double expected = 0, magnitude = 0;
          for (std::int64_t v = 0; v < p.virtual_ranks; ++v) {
            expected += value_of(step, v, i);
            magnitude += std::abs(value_of(step, v, i));
          }
          ASSERT_NEAR(sum[i], expected, magnitude * 1e-6)
              << to_string(p) << ", rank " << comm.rank() << ", step " << step << ", element " << i;
        }
      }
      barrier(comm);  // results are read before the next step overwrites them
    }
  });
}

TEST(Reducer, EveryPlacementGivesTheBitsOfTheTree) {
  for (const std::int64_t v : {1, 2, 3, 4, 5, 6, 7, 8}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int lanes : {1, 2, 3}) {
        if (ranks <= v) check({v, ranks, lanes}, Reduction::reproducible);
      }
    }
  }
}

TEST(Reducer, FastReductionSumsEverything) {
  for (const std::int64_t v : {1, 3, 4, 7, 8}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int lanes : {1, 2, 3}) {
        if (ranks <= v) check({v, ranks, lanes}, Reduction::fast);
      }
    }
  }
}

TEST(Reducer, ASlowRankChangesNothing) {
  for (const int slow : {0, 2}) {
    check({8, 3, 2}, Reduction::reproducible, slow);
    check({8, 3, 2}, Reduction::fast, slow);
  }
}

// Each rank knows whether it was its own part that was not finite, in any slot and bucket.
TEST(Reducer, FiniteNamesTheRank) {
  const Model model(sizes);
  const BucketPlan plan = make_bucket_plan(model.layout, 2048);
  for (const Reduction reduction : {Reduction::reproducible, Reduction::fast}) {
    for (const std::int64_t bad : {0, 2, 5}) {  // virtual rank; rank 0, 1 and 2 of 3
      for (const std::size_t element :
           {std::size_t{0}, std::size_t(plan.buckets.back().last - 16)}) {
        const std::vector<float> values = {std::numeric_limits<float>::quiet_NaN(),
                                           std::numeric_limits<float>::infinity()};
        for (const float value : values) {
          run_ranks(3, [&](Communicator& comm) {
            Reducer reducer(comm, model.layout, plan, 6, 1, reduction);
            Worker worker(comm, reducer, model, 1);
            worker.spoil = [&](std::int64_t v, std::span<float> gradients) {
              if (v == bad) gradients[element] = value;
            };
            worker.step(0);
            EXPECT_EQ(reducer.finite(), comm.rank() != static_cast<int>(bad / 2))
                << "virtual rank " << bad << ", element " << element;
            EXPECT_FALSE(std::isfinite(reducer.gradients()[element]));
            worker.spoil = nullptr;
            worker.step(1);  // and a clean step is clean again
            EXPECT_TRUE(reducer.finite());
          });
        }
      }
    }
  }
}

TEST(Reducer, AnAbortedPeerEndsTheWaiting) {
  const Model model(sizes);
  const BucketPlan plan = make_bucket_plan(model.layout, 2048);
  for (const Reduction reduction : {Reduction::reproducible, Reduction::fast}) {
    std::mutex mutex;
    std::vector<std::string> errors;
    run_ranks(3, [&](Communicator& comm) {
      Reducer reducer(comm, model.layout, plan, 6, 1, reduction);
      if (comm.rank() == 1) {
        comm.abort("rank 1 failed: no more disk");
        return;
      }
      Worker worker(comm, reducer, model, 1);
      try {
        worker.step(0);
      } catch (const CommError& e) {
        const std::lock_guard lock(mutex);
        errors.push_back(e.what());
      }
    });
    ASSERT_EQ(errors.size(), 2U);
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("rank 1 failed: no more disk"), std::string::npos) << error;
    }
  }
}

// A peer that does not come is named, and what waits ends by itself.
TEST(Reducer, AMissingPeerIsNamed) {
  const Model model(sizes);
  const BucketPlan plan = make_bucket_plan(model.layout, 2048);
  std::string error;
  run_ranks(
      2,
      [&](Communicator& comm) {
        Reducer reducer(comm, model.layout, plan, 2, 1, Reduction::reproducible);
        if (comm.rank() == 1) return;
        Worker worker(comm, reducer, model, 1);
        try {
          worker.step(0);
        } catch (const CommError& e) {
          error = e.what();
          EXPECT_EQ(e.blamed_rank(), 1);
        }
      },
      CommOptions{.timeout = 0.5});
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
}

// One reduction per step and bucket, whatever the number of waves.
TEST(Reducer, SumsEachBucketOncePerStep) {
  const Model model(sizes);
  const BucketPlan plan = make_bucket_plan(model.layout, 2048);
  run_ranks(2, [&](Communicator& comm) {
    Reducer reducer(comm, model.layout, plan, 8, 1, Reduction::reproducible);
    EXPECT_EQ(reducer.waves(), 4);
    Worker worker(comm, reducer, model, 1);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      worker.step(static_cast<std::int64_t>(step));
      EXPECT_EQ(comm.stats().tree_sums, step * plan.buckets.size());
    }
  });
}

TEST(Reducer, NeedsFewSlots) {
  const auto needed = [](std::int64_t v, int rank, int ranks, int lanes) {
    return Reducer::slots_needed(v, rank, ranks, lanes, Reduction::reproducible);
  };
  EXPECT_EQ(needed(8, 0, 1, 8), 8);      // all at once
  EXPECT_EQ(needed(8, 0, 8, 1), 1);      // one each
  EXPECT_EQ(needed(8, 0, 1, 1), 1 + 3);  // like a binary counter
  EXPECT_EQ(needed(4, 1, 2, 1), 1 + 1);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(Reducer::slots_needed(8, rank, 3, 2, Reduction::fast), 2);
  }
  EXPECT_EQ(Reducer::slots_needed(8, 0, 8, 4, Reduction::fast), 1);
}

}  // namespace
}  // namespace dtrain
