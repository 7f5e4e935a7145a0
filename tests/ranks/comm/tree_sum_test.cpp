// Sums in the order of the tree, to the bit, against a plain reference, on every transport.
#include <cmath>
#include <cstdint>

#include "group_test_support.h"

#include "dtrain/parallel/comm/plan_tree_sum.h"
#include "dtrain/parallel/reduce/slot_schedule.h"

namespace dtrain {
namespace {

// What virtual rank v holds at element i: values whose sum depends on the order.
float value_of(std::int64_t v, std::size_t i) {
  std::uint64_t x = static_cast<std::uint64_t>(v) * 0x9e3779b97f4a7c15 + i * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9;
  const auto mantissa = static_cast<float>((x >> 40) % 20001) - 10000.f;
  return std::ldexp(mantissa, static_cast<int>((x >> 20) % 30) - 15);
}

// The definition of the order of sums, written down plainly.
float reference(std::int64_t virtual_ranks, std::int64_t first, std::int64_t width, std::size_t i) {
  if (width == 1) return value_of(first, i);
  const std::int64_t half = width / 2;
  const float left = reference(virtual_ranks, first, half, i);
  if (first + half >= virtual_ranks) return left;
  return left + reference(virtual_ranks, first + half, half, i);
}

std::vector<float> reference(std::int64_t virtual_ranks, std::size_t count) {
  std::int64_t width = 1;
  while (width < virtual_ranks) width *= 2;
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] = reference(virtual_ranks, 0, width, i);
  return sums;
}

// Runs the waves of a rank in its arena, as a trainer does.
void run_waves(const SlotSchedule& schedule, std::span<std::byte> arena, std::size_t slot_bytes,
               std::size_t count) {
  const auto slot = [&](int s) {
    return reinterpret_cast<float*>(arena.data() + static_cast<std::size_t>(s) * slot_bytes);
  };
  for (int w = 0; w < schedule.waves(); ++w) {
    std::int64_t v = schedule.wave_range(w).first;
    for (const int s : schedule.leaf_slots(w)) {
      for (std::size_t i = 0; i < count; ++i) slot(s)[i] = value_of(v, i);
      ++v;
    }
    for (const Addition& a : schedule.additions_after(w)) {
      for (std::size_t i = 0; i < count; ++i) slot(a.into)[i] += slot(a.from)[i];
    }
  }
}

struct Case {
  std::string transport;
  std::int64_t virtual_ranks;
  int ranks;
  int lanes;
};

void check_sum(const Case& c, std::size_t count, std::size_t first, std::size_t summed) {
  const SumTree tree(c.virtual_ranks);
  const std::size_t slot_bytes = (count * sizeof(float) + 63) / 64 * 64;
  const TreeSum plan = plan_tree_sum(tree, c.ranks, c.lanes, slot_bytes);
  const std::vector<float> expected = reference(c.virtual_ranks, count);
  run_group(c.transport, c.ranks, [&](Communicator& comm) {
    const SlotSchedule schedule(tree, virtual_range(c.virtual_ranks, comm.rank(), c.ranks),
                                c.lanes);
    const auto memory = comm.allocate(static_cast<std::size_t>(schedule.slots()) * slot_bytes);
    InlineStream stream;
    for (int round = 0; round < 2; ++round) {
      run_waves(schedule, memory->local(), slot_bytes, count);
      const auto* result = reinterpret_cast<const float*>(memory->local().data());
      const std::vector<float> before(result, result + count);
      comm.tree_sum(stream, *memory, plan, first, summed).wait();
      for (std::size_t i = 0; i < count; ++i) {
        const bool inside = i >= first && i < first + summed;
        ASSERT_EQ(result[i], inside ? expected[i] : before[i])
            << c.transport << ", V " << c.virtual_ranks << ", R " << c.ranks << ", L " << c.lanes
            << ", element " << i << " of " << count << ", rank " << comm.rank();
      }
      barrier(comm);  // results are read before the next round overwrites them
    }
  });
}

class Transports : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(TreeSum, Transports, testing::Values("local", "shm"),
                         [](const auto& info) { return info.param; });

TEST_P(Transports, EveryPlacementGivesTheSameBits) {
  for (const std::int64_t v : {1, 2, 3, 4, 6, 8, 13}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const int lanes : {1, 2, 3, 8}) {
        if (ranks > v || (ranks > 4 && lanes > 2)) continue;
        check_sum({GetParam(), v, ranks, lanes}, 37, 0, 37);
      }
    }
  }
}

TEST_P(Transports, OddSizesAndParts) {
  for (const int ranks : {2, 3, 4}) {
    for (const std::size_t count : {1, 15, 16, 17, 4097, 60001}) {
      check_sum({GetParam(), 6, ranks, 1}, count, 0, count);
    }
    check_sum({GetParam(), 6, ranks, 2}, 4097, 5, 4000);
    check_sum({GetParam(), 6, ranks, 2}, 40961, 1, 40959);
    check_sum({GetParam(), 6, ranks, 2}, 64, 32, 0);
  }
}

TEST_P(Transports, RanksWithDifferentLanes) {
  const SumTree tree(8);
  const std::vector<int> lanes{1, 4, 2};
  const std::size_t count = 100;
  const std::size_t slot_bytes = 448;
  const TreeSum plan = plan_tree_sum(tree, lanes, slot_bytes);
  const std::vector<float> expected = reference(8, count);
  run_group(GetParam(), 3, [&](Communicator& comm) {
    const SlotSchedule schedule(tree, virtual_range(8, comm.rank(), 3), lanes[comm.rank()]);
    const auto memory = comm.allocate(static_cast<std::size_t>(schedule.slots()) * slot_bytes);
    run_waves(schedule, memory->local(), slot_bytes, count);
    QueueStream stream("comm");
    comm.tree_sum(stream, *memory, plan, 0, count).wait();
    const auto* result = reinterpret_cast<const float*>(memory->local().data());
    ASSERT_EQ(std::vector<float>(result, result + count), expected);
  });
}

TEST_P(Transports, BucketsInTurnOnAStreamWhileTheCallerGoesOn) {
  constexpr std::size_t count = 300000;
  constexpr std::size_t bucket = 40000;
  const TreeSum plan = plan_tree_sum(SumTree(4), 4, 1, count * sizeof(float));
  run_group(GetParam(), 4, [&](Communicator& comm) {
    const auto memory = comm.allocate(count * sizeof(float));
    auto* values = reinterpret_cast<float*>(memory->local().data());
    QueueStream stream("comm");
    std::vector<Work> works;
    for (std::size_t first = 0; first < count; first += bucket) {
      const std::size_t n = std::min(bucket, count - first);
      for (std::size_t i = first; i < first + n; ++i) {
        values[i] = static_cast<float>(i % 1000) + static_cast<float>(comm.rank());
      }
      works.push_back(comm.tree_sum(stream, *memory, plan, first, n));
    }
    for (const Work& work : works) work.wait();
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(values[i], static_cast<float>(4 * (i % 1000) + 6)) << i;
    }
    const CommStats stats = comm.stats();
    EXPECT_EQ(stats.tree_sums, works.size());
    EXPECT_EQ(stats.collectives, works.size());
    EXPECT_EQ(stats.bytes, count * sizeof(float));
  });
}

}  // namespace
}  // namespace dtrain
