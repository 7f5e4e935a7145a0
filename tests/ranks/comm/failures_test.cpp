// What must never be a hang or a wrong sum: mismatches, absent ranks, aborts, bad arguments.
#include <chrono>
#include <thread>

#include "group_test_support.h"

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/plan_tree_sum.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

class Failures : public testing::TestWithParam<std::string> {
 protected:
  // What each rank's communicator reports, in rank order.
  struct Report {
    std::string text;
    int blamed = -2;
  };
  std::vector<Report> reports(int ranks, const std::function<void(Communicator&)>& body,
                              CommOptions options = {.timeout = 30}) {
    std::vector<Report> out(static_cast<std::size_t>(ranks));
    run_group(
        GetParam(), ranks,
        [&](Communicator& comm) {
          try {
            body(comm);
          } catch (const CommError& e) {
            out[static_cast<std::size_t>(comm.rank())] = {e.what(), e.blamed_rank()};
          }
        },
        options);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Comm, Failures, testing::Values("local", "shm"),
                         [](const auto& info) { return info.param; });

TEST_P(Failures, SizesThatDifferAreAnErrorOnAllRanksAndNoSum) {
  for (const std::size_t base : {std::size_t{4}, std::size_t{100000}}) {
    const auto all = reports(2, [&](Communicator& comm) {
      const auto memory = comm.allocate(1 << 20);
      auto* values = reinterpret_cast<float*>(memory->local().data());
      std::fill_n(values, base, 1.f);
      InlineStream stream;
      const Work work =
          comm.all_reduce(stream, *memory, 0, base + static_cast<std::size_t>(comm.rank()));
      EXPECT_TRUE(work.done());
      EXPECT_EQ(values[0], 1.f);
      work.wait();
      ADD_FAILURE() << "a sum of different sizes";
    });
    for (const Report& report : all) {
      EXPECT_EQ(report.text,
                fmt::format("collective #2 differs: rank 0 all_reduce f32[{}], rank 1 all_reduce "
                            "f32[{}]",
                            base, base + 1));
    }
  }
}

TEST_P(Failures, OperationsThatDifferAreAnErrorOnAllRanks) {
  const auto all = reports(3, [&](Communicator& comm) {
    const auto memory = comm.allocate(64);
    InlineStream stream;
    std::vector<std::byte> bytes(5);
    if (comm.rank() == 1) {
      comm.broadcast(stream, bytes, 2).wait();
    } else {
      comm.all_reduce(stream, *memory, 0, 4).wait();
    }
    ADD_FAILURE() << "passed";
  });
  for (const Report& report : all) {
    EXPECT_EQ(
        report.text,
        "collective #2 differs: rank 0 all_reduce f32[4], rank 1 broadcast u8[5] from rank 2, "
        "rank 2 all_reduce f32[4]");
    EXPECT_EQ(report.blamed, 1);
  }
}

TEST_P(Failures, OffsetsPlansAndMemoriesThatDifferAreNamed) {
  const TreeSum plan = plan_tree_sum(SumTree(2), 2, 1, 64);
  TreeSum other = plan;
  other.partials[1][0].offset = 64;
  for (int kind = 0; kind < 3; ++kind) {
    const auto all = reports(2, [&](Communicator& comm) {
      const auto memory = comm.allocate(256);
      const auto second = comm.allocate(256);
      InlineStream stream;
      const bool odd = comm.rank() == 1;
      if (kind == 0) {
        comm.all_reduce(stream, *memory, odd ? 8 : 0, 4).wait();
      } else if (kind == 1) {
        comm.tree_sum(stream, *memory, odd ? other : plan, 0, 4).wait();
      } else {
        comm.tree_sum(stream, odd ? *second : *memory, plan, 0, 4).wait();
      }
      ADD_FAILURE() << "passed";
    });
    for (const Report& report : all) {
      EXPECT_EQ(report.text.find("collective #3 differs: rank 0 "), 0u) << report.text;
      EXPECT_NE(report.text.find(kind == 1 ? "by plan" : "of memory"), std::string::npos);
    }
    EXPECT_EQ(all[0].text, all[1].text);
  }
}

TEST_P(Failures, ASkippedCallIsFoundAtTheNextDifference) {
  const auto all = reports(2, [&](Communicator& comm) {
    const auto memory = comm.allocate(256);
    InlineStream stream;
    for (int step = 0; step < 3; ++step) {
      if (!(step == 1 && comm.rank() == 1)) comm.all_reduce(stream, *memory, 0, 4).wait();
      comm.all_gather(stream, {}, {}).wait();
    }
    ADD_FAILURE() << "passed";
  });
  for (const Report& report : all) {
    EXPECT_EQ(report.text,
              "collective #4 differs: rank 0 all_reduce f32[4], rank 1 all_gather u8[0]");
  }
}

TEST_P(Failures, ARankThatDoesNotComeIsNamedOnAllRanks) {
  const TimePoint start = Clock::now();
  const auto all = reports(
      4,
      [&](Communicator& comm) {
        const auto memory = comm.allocate(4096);
        InlineStream stream;
        if (comm.rank() == 2) std::this_thread::sleep_for(milliseconds(1500));
        comm.tree_sum(stream, *memory, plan_tree_sum(SumTree(4), 4, 1, 4096), 0, 1000).wait();
        ADD_FAILURE() << "passed";
      },
      {.timeout = 0.5});
  EXPECT_LT(seconds_since(start), 20);
  for (const Report& report : all) {
    EXPECT_EQ(report.text.find("rank 2 has not entered tree_sum #2 (4000 bytes) for "), 0u)
        << report.text;
    EXPECT_NE(report.text.find(" s; waiting: 0, 1, 3"), std::string::npos) << report.text;
    EXPECT_EQ(report.blamed, 2);
  }
}

TEST_P(Failures, TimeoutCanBeChanged) {
  const auto all = reports(2, [&](Communicator& comm) {
    comm.set_timeout(0.3);
    if (comm.rank() == 0) barrier(comm);
    std::this_thread::sleep_for(milliseconds(comm.rank() * 900));
    barrier(comm);
  });
  EXPECT_EQ(all[0].text.find("rank 1 has not entered all_gather #1 (0 bytes) for 0."), 0u)
      << all[0].text;
  EXPECT_EQ(all[1].text, all[0].text);
}

TEST_P(Failures, AbortWakesEveryoneAtOnceAndStays) {
  const TimePoint start = Clock::now();
  const auto all = reports(4, [&](Communicator& comm) {
    if (comm.rank() == 3) {
      std::this_thread::sleep_for(milliseconds(300));  // the others sleep by now
      comm.abort("rank 3 ran out of memory");
      comm.abort("a second reason");
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_THROW(barrier(comm), CommError);
      EXPECT_THROW(comm.allocate(64), CommError);
    }
    barrier(comm);
  });
  EXPECT_LT(seconds_since(start), 10);
  for (const Report& report : all) EXPECT_EQ(report.text, "rank 3 ran out of memory");
}

TEST_P(Failures, AbortReachesAGroupOfOne) {
  const auto all = reports(1, [&](Communicator& comm) {
    barrier(comm);
    comm.abort("stopped");
    barrier(comm);
  });
  EXPECT_EQ(all[0].text, "stopped");
}

TEST_P(Failures, ErrorsComeFromWaitNotFromTheCall) {
  run_group(GetParam(), 2, [&](Communicator& comm) {
    const auto memory = comm.allocate(64);
    if (comm.rank() == 0) comm.abort("stop");
    InlineStream stream;
    while (true) {
      const Work work = comm.all_reduce(stream, *memory, 0, 4);
      EXPECT_TRUE(work.done());
      if (work.error() == nullptr) continue;
      EXPECT_THROW(work.wait(), CommError);
      EXPECT_THROW(work.wait(), CommError);
      break;
    }
    EXPECT_NO_THROW(stream.synchronize());
  });
}

TEST_P(Failures, ACollectiveThatItsStreamSkippedIsNoSuccess) {
  run_group(GetParam(), 1, [&](Communicator& comm) {
    QueueStream stream("comm");
    stream.submit([] { throw DeviceError("broken"); });
    const Work work = comm.all_gather(stream, {}, {});
    EXPECT_THROW(work.wait(), CommError);
    EXPECT_THROW(stream.synchronize(), DeviceError);
  });
}

TEST_P(Failures, OutOfBoundsIsAnErrorOnAllRanks) {
  for (const std::size_t count : {std::size_t{17}, std::size_t{100000}}) {
    std::atomic<int> errors = 0;
    run_group(GetParam(), 2, [&](Communicator& comm) {
      const auto memory = comm.allocate(comm.rank() == 0 ? 1 << 20 : 64);
      InlineStream stream;
      const Work work = comm.all_reduce(stream, *memory, 0, count);
      errors += work.error() != nullptr;
      // Bounds, or that the other rank has found them broken first.
      EXPECT_ANY_THROW(work.wait());
    });
    EXPECT_EQ(errors, 2);
  }
}

TEST_P(Failures, MoreMemoryThanThereIsIsAnErrorOnAllRanksThatNamesNeedAndRemedy) {
  std::atomic<int> errors = 0;
  run_group(GetParam(), 2, [&](Communicator& comm) {
    try {
      comm.allocate(comm.rank() == 0 ? std::size_t{1} << 50 : 4096);
      ADD_FAILURE() << "a pebibyte";
    } catch (const DeviceError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("need 1073741824.0 MiB"), std::string::npos) << text;
      EXPECT_NE(text.find("MiB free (limit: "), std::string::npos) << text;
      EXPECT_NE(text.find("fewer processes"), std::string::npos) << text;
      ++errors;
    }
    // The group is as good as before.
    EXPECT_EQ(comm.allocate(4096)->local().size(), 4096u);
    barrier(comm);
  });
  EXPECT_EQ(errors, 2);
}

TEST_P(Failures, TheFirstErrorIsTheOneReported) {
  const std::string text = error_of_group<DataError>(GetParam(), 4, [](Communicator& comm) {
    if (comm.rank() == 1) throw DataError("/data/x.csv", 7, "not a number");
    barrier(comm);
  });
  EXPECT_NE(text.find("/data/x.csv"), std::string::npos) << text;
}

TEST(ShmGroup, ARankThatNeverJoinsIsNamed) {
  const auto store = make_local_store();
  const CommOptions options{.connect_timeout = 0.3};
  try {
    make_shm_communicator(*store, 1, 2, options);
    ADD_FAILURE() << "joined alone";
  } catch (const CommError& e) {
    EXPECT_STREQ(e.what(), "rank 0 has not opened the group 'world' for 0.3 s");
    EXPECT_EQ(e.blamed_rank(), 0);
  }
  const auto fresh = make_local_store();
  try {
    make_shm_communicator(*fresh, 0, 3, options);
    ADD_FAILURE() << "joined alone";
  } catch (const CommError& e) {
    EXPECT_EQ(std::string(e.what()).find("ranks 1, 2 have not joined the group for 0."), 0u)
        << e.what();
    EXPECT_EQ(e.blamed_rank(), 1);
  }
}

TEST(ShmGroup, SeveralGroupsMeetInOneStore) {
  const auto store = make_local_store();
  run_ranks(
      3, [&](int rank) { return make_shm_communicator(*store, rank, 3, {.name = "buckets"}); },
      [&](Communicator& buckets) {
        for (int i = 0; i < 2; ++i) {
          const auto votes = make_shm_communicator(*store, buckets.rank(), 3, {.name = "votes"});
          barrier(*votes);
          barrier(buckets);
        }
      });
}

}  // namespace
}  // namespace dtrain
