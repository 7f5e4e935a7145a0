// How much memory this process can still get: what the machine has left, or what the limits of its
// control groups leave, whichever is less. Shared memory counts against both, and where there is
// not enough the kernel kills instead of refusing: so it is asked for before it is taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace dtrain {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string limit;  // what sets it: "memory of the machine", or the file of a control group
};

// `root` is the root of the file system to read proc and sys from; another one in tests.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

// "12.5 MiB".
std::string mebibytes(std::uint64_t bytes);

}  // namespace dtrain
