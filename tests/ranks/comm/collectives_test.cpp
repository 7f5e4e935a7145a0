// all_reduce, all_gather, broadcast, barrier and memory, with exact values, on every transport.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "group_test_support.h"

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

class Groups : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void run(const std::function<void(Communicator&)>& body) {
    run_group(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
  int ranks() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(
    Comm, Groups, testing::Combine(testing::Values("local", "shm"), testing::Values(1, 2, 3, 4, 8)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
    });

TEST_P(Groups, AllReduceAddsExactly) {
  run([&](Communicator& comm) {
    constexpr std::size_t most = 70001;
    const auto memory = comm.allocate(most * sizeof(float) + 64);
    InlineStream stream;
    for (const std::size_t offset : {std::size_t{0}, std::size_t{12}}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{15},
                                      std::size_t{1024}, std::size_t{4097}, most}) {
        auto* values = reinterpret_cast<float*>(memory->local().data() + offset);
        for (std::size_t i = 0; i < count + 1; ++i) {
          values[i] = static_cast<float>(i % 97) * static_cast<float>(comm.rank() + 1);
        }
        const float behind = values[count];
        comm.all_reduce(stream, *memory, offset, count).wait();
        const auto factor = static_cast<float>(ranks() * (ranks() + 1) / 2);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(values[i], static_cast<float>(i % 97) * factor) << i << " of " << count;
        }
        ASSERT_EQ(values[count], behind);
        barrier(comm);
      }
    }
  });
}

// Bytes that tell their place and their writer.
std::vector<std::byte> pattern(std::size_t bytes, int writer) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(i * 7 + (i >> 8) + static_cast<std::size_t>(writer) * 31);
  }
  return out;
}

TEST_P(Groups, AllGatherKeepsRankOrder) {
  run([&](Communicator& comm) {
    InlineStream stream;
    for (const std::size_t bytes : {0, 1, 8, 4095, 70000, 600001}) {
      const std::vector<std::byte> in = pattern(bytes, comm.rank());
      std::vector<std::byte> out(bytes * static_cast<std::size_t>(ranks()), std::byte{255});
      comm.all_gather(stream, in, out).wait();
      std::vector<std::byte> expected;
      for (int r = 0; r < ranks(); ++r) {
        const std::vector<std::byte> part = pattern(bytes, r);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      ASSERT_TRUE(out == expected) << bytes << " bytes, rank " << comm.rank();
    }
  });
}

TEST_P(Groups, BroadcastFromEveryRoot) {
  run([&](Communicator& comm) {
    InlineStream stream;
    for (int root = 0; root < ranks(); ++root) {
      for (const std::size_t bytes : {0, 1, 4097, 300000, 1200001}) {
        std::vector<std::byte> data(bytes, static_cast<std::byte>(comm.rank()));
        if (comm.rank() == root) data = pattern(bytes, root);
        comm.broadcast(stream, data, root).wait();
        ASSERT_TRUE(data == pattern(bytes, root)) << bytes << " bytes from rank " << root;
      }
    }
  });
}

TEST_P(Groups, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> come = 0;
  run([&](Communicator& comm) {
    for (int round = 1; round <= 50; ++round) {
      ++come;
      barrier(comm);
      ASSERT_GE(come.load(), round * ranks());
      barrier(comm);
    }
  });
  EXPECT_EQ(come.load(), 50 * ranks());
}

TEST_P(Groups, MemoryIsZeroAlignedAndAsLargeAsAsked) {
  run([&](Communicator& comm) {
    const std::size_t bytes = 1000 + 5000 * static_cast<std::size_t>(comm.rank());
    std::vector<std::unique_ptr<SharedMemory>> memories;
    for (int i = 0; i < 3; ++i) {
      memories.push_back(comm.allocate(i == 1 ? 0 : bytes));
      const auto local = memories.back()->local();
      ASSERT_EQ(local.size(), i == 1 ? 0 : bytes);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(local.data()) % 64, 0u);
      ASSERT_TRUE(std::ranges::all_of(local, [](std::byte b) { return b == std::byte{0}; }));
      std::ranges::fill(local, std::byte{1});
    }
    const std::string transport = comm.stats().transport;
    EXPECT_NE(transport.find(std::get<0>(GetParam()) + ": "), std::string::npos) << transport;
    EXPECT_NE(transport.find("MiB control"), std::string::npos) << transport;
  });
}

TEST_P(Groups, MixedCollectivesStayInStep) {
  run([&](Communicator& comm) {
    const auto memory = comm.allocate(1 << 20);
    auto* values = reinterpret_cast<float*>(memory->local().data());
    QueueStream stream("comm");
    for (int round = 0; round < 20; ++round) {
      const std::size_t count = round % 2 == 0 ? 200000 : 10;
      std::fill_n(values, count, static_cast<float>(round));
      const Work sum = comm.all_reduce(stream, *memory, 0, count);
      std::array<std::byte, 3> word{std::byte(round), std::byte(comm.rank()), std::byte{9}};
      std::vector<std::byte> all(3 * static_cast<std::size_t>(ranks()));
      const Work vote = comm.all_gather(stream, word, all);
      std::vector<std::byte> text(5000, std::byte(comm.rank() == 0 ? round : 77));
      const Work told = comm.broadcast(stream, text, 0);
      sum.wait();
      vote.wait();
      told.wait();
      ASSERT_TRUE(sum.done());
      ASSERT_EQ(values[count - 1], static_cast<float>(round * ranks()));
      ASSERT_EQ(all[3 * static_cast<std::size_t>(ranks()) - 2], std::byte(ranks() - 1));
      ASSERT_EQ(text[4999], std::byte(round));
      comm.all_gather(stream, {}, {}).wait();
    }
  });
}

}  // namespace
}  // namespace dtrain
