// The caching allocator: reuse, figures, limits, lifetimes.
#include "dtrain/core/device/allocator.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

constexpr std::uint64_t mib = 1 << 20;

TEST(Allocator, AddressesAreMultiplesOf64) {
  Allocator allocator("test");
  std::vector<MemoryBlock> blocks;
  for (std::size_t bytes : {0, 1, 63, 64, 65, 513, 1000, 100001}) {
    blocks.push_back(allocator.allocate(bytes, "block"));
    EXPECT_NE(blocks.back().data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().data()) % 64, 0U) << bytes;
    EXPECT_EQ(blocks.back().bytes(), bytes);
    std::memset(blocks.back().data(), 0xab, bytes);
  }
}

TEST(Allocator, UsesFreedMemoryAgain) {
  Allocator allocator("test");
  void* first = nullptr;
  {
    const MemoryBlock block = allocator.allocate(100000, "a");
    first = block.data();
  }
  const std::uint64_t calls = allocator.stats().system_calls;
  const MemoryBlock again = allocator.allocate(60000, "b");
  EXPECT_EQ(again.data(), first);
  const MemoryBlock other = allocator.allocate(40000, "c");
  EXPECT_NE(other.data(), first);
  EXPECT_EQ(allocator.stats().system_calls, calls);
  EXPECT_EQ(allocator.stats().reserved, 102400U);
}

TEST(Allocator, RoundsUpTo64) {
  Allocator allocator("test");
  for (std::size_t bytes = 1; bytes < 4000; bytes += 13) {
    const MemoryBlock block = allocator.allocate(bytes, "block");
    EXPECT_EQ(allocator.stats().allocated, (bytes + 63) / 64 * 64);
  }
}

// Neighbours that are free become one, whichever was freed first.
TEST(Allocator, JoinsFreeNeighbours) {
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    Allocator allocator("test");
    std::vector<MemoryBlock> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(mib, "block"));
    const MemoryBlock end = allocator.allocate(mib, "end");
    void* const first = blocks[0].data();
    for (const int i : order) blocks[i] = MemoryBlock();
    EXPECT_EQ(allocator.allocate(3 * mib, "all three").data(), first);
    EXPECT_EQ(allocator.stats().reserved, 4 * mib);
  }
}

TEST(Allocator, TakesTheSmallestHoleThatIsLargeEnough) {
  Allocator allocator("test");
  MemoryBlock wide = allocator.allocate(3 * mib, "wide");
  const MemoryBlock a = allocator.allocate(64, "a");
  MemoryBlock narrow = allocator.allocate(mib, "narrow");
  const MemoryBlock b = allocator.allocate(64, "b");
  void* const hole = narrow.data();
  narrow = MemoryBlock();
  wide = MemoryBlock();
  EXPECT_EQ(allocator.allocate(mib - 100, "fits").data(), hole);
}

// What is taken from the system is close to the most that was in use at once, though sizes differ.
TEST(Allocator, PassesOfChangingSizesLeaveNoHoles) {
  Allocator allocator("test");
  for (int step = 0; step < 4; ++step) {
    std::vector<MemoryBlock> outputs;
    for (std::size_t layer = 1; layer <= 40; ++layer) {
      outputs.push_back(allocator.allocate(layer * 10000 + step * 640, "output"));
      const MemoryBlock scratch = allocator.allocate((41 - layer) * 20000, "scratch");
    }
    while (!outputs.empty()) {
      const MemoryBlock scratch = allocator.allocate(outputs.size() * 15000, "scratch");
      outputs.pop_back();
    }
  }
  const AllocatorStats stats = allocator.stats();
  EXPECT_LE(stats.peak_reserved, stats.peak_allocated + stats.peak_allocated / 50);
}

TEST(Allocator, CountsBytesAndPeaks) {
  Allocator allocator("test");
  {
    const MemoryBlock a = allocator.allocate(mib, "a");
    const MemoryBlock b = allocator.allocate(2 * mib, "b");
    EXPECT_EQ(allocator.stats().allocated, 3 * mib);
  }
  AllocatorStats stats = allocator.stats();
  EXPECT_EQ(stats.allocated, 0U);
  EXPECT_EQ(stats.reserved, 3 * mib);
  EXPECT_EQ(stats.peak_allocated, 3 * mib);
  EXPECT_EQ(stats.peak_reserved, 3 * mib);
  allocator.release_cached();
  allocator.reset_peak();
  stats = allocator.stats();
  EXPECT_EQ(stats.reserved, 0U);
  EXPECT_EQ(stats.peak_allocated, 0U);
  EXPECT_EQ(stats.peak_reserved, 0U);
  EXPECT_EQ(stats.system_calls, 2U);
}

TEST(Allocator, TheErrorNamesWhoWhatAndTheRemedy) {
  Allocator allocator("lane 3", 4 * mib);
  const MemoryBlock held = allocator.allocate(3 * mib, "held");
  try {
    allocator.allocate(2 * mib, "conv1 output");
    FAIL() << "over the limit";
  } catch (const DeviceError& e) {
    EXPECT_STREQ(e.what(),
                 "lane 3: out of memory: conv1 output asked for 2.0 MiB; 3.0 MiB are in use, 3.0 "
                 "MiB reserved, the limit is 4.0 MiB; use a smaller batch.micro, or fewer cores "
                 "per process (fewer lanes at once)");
  }
  EXPECT_EQ(allocator.stats().allocated, 3 * mib);
  EXPECT_EQ(allocator.allocate(mib, "fits").bytes(), mib);
}

TEST(Allocator, CachedBlocksMakeRoomBelowTheLimit) {
  Allocator allocator("test", 4 * mib);
  { const MemoryBlock block = allocator.allocate(3 * mib, "a"); }
  const MemoryBlock block = allocator.allocate(4 * mib, "b");
  EXPECT_EQ(allocator.stats().reserved, 4 * mib);
}

TEST(Allocator, WhatTheSystemDoesNotHaveIsAnError) {
  Allocator allocator("test");
  try {
    allocator.allocate(std::size_t{1} << 60, "everything");
    FAIL() << "nobody has that much";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("everything"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("the system has no more"), std::string::npos);
  }
}

TEST(Allocator, BlocksOutliveIt) {
  std::optional<Allocator> allocator(std::in_place, "short");
  MemoryBlock block = allocator->allocate(1000, "block");
  allocator.reset();
  std::memset(block.data(), 1, 1000);
  block = MemoryBlock();
  EXPECT_EQ(block.data(), nullptr);
}

TEST(Allocator, MovesGiveEachBlockBackOnce) {
  Allocator allocator("test");
  {
    MemoryBlock a = allocator.allocate(64, "a");
    MemoryBlock b = allocator.allocate(128, "b");
    void* const second = b.data();
    a = std::move(b);
    EXPECT_EQ(a.data(), second);
    const MemoryBlock c = std::move(a);
    EXPECT_EQ(c.data(), second);
  }
  EXPECT_EQ(allocator.stats().allocated, 0U);
}

TEST(Allocator, BlocksAreGivenBackFromAnyThread) {
  Allocator allocator("test");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        MemoryBlock block = allocator.allocate(100 + 37 * ((t + i) % 9), "block");
        std::memset(block.data(), t, block.bytes());
        std::thread([moved = std::move(block)] {}).join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.stats().allocated, 0U);
  EXPECT_LE(allocator.stats().reserved, 64U << 10);
}

}  // namespace
}  // namespace dtrain
