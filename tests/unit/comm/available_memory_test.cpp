// Reading how much memory there is, from made-up proc and sys trees.
#include "dtrain/parallel/comm/direct/available_memory.h"

#include <fstream>

#include <gtest/gtest.h>

#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

constexpr std::uint64_t mib = 1 << 20;

class AvailableMemoryTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_.path() / path).parent_path());
    std::ofstream(root_.path() / path) << text;
  }
  AvailableMemory read() const { return available_memory(root_.path()); }

 private:
  TemporaryDirectory root_;
};

TEST_F(AvailableMemoryTest, OfTheMachineWithoutGroups) {
  write("proc/meminfo", "MemTotal: 8192 kB\nMemFree: 1 kB\nMemAvailable:   4096 kB\nHuge: 0\n");
  EXPECT_EQ(read().bytes, 4 * mib);
  EXPECT_EQ(read().limit, "memory of the machine");
}

TEST_F(AvailableMemoryTest, TightestLevelOfVersion2) {
  write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/memory.max", "209715200\n");
  write("sys/fs/cgroup/job/memory.current", "104857600\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 10485760\nactive_file 7\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "104857600\n");
  EXPECT_EQ(read().bytes, 110 * mib);  // files in memory can be dropped
  EXPECT_TRUE(read().limit.ends_with("sys/fs/cgroup/job/memory.max")) << read().limit;
}

TEST_F(AvailableMemoryTest, Version1) {
  write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("proc/self/cgroup", "5:cpu,memory:/a\n4:cpuset:/\n0::/\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "209715200\n");
  EXPECT_EQ(read().bytes, 0u);
  EXPECT_TRUE(read().limit.ends_with("memory.limit_in_bytes"));
}

TEST_F(AvailableMemoryTest, InAContainerTheMountIsTheGroup) {
  write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("proc/self/cgroup", "0::/host/only/path\n");
  write("sys/fs/cgroup/memory.max", "67108864\n");
  write("sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(read().bytes, 64 * mib);
}

TEST_F(AvailableMemoryTest, NothingKnownIsNoLimit) {
  EXPECT_EQ(read().bytes, UINT64_MAX);
}

TEST(Mebibytes, HaveOneDecimal) {
  EXPECT_EQ(mebibytes(13107200), "12.5 MiB");
}

}  // namespace
}  // namespace dtrain
