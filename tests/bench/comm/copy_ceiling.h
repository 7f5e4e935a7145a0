// The fastest way to move bytes on this machine: what an all-reduce is measured against. Each rank
// reads and writes as many bytes as an all-reduce of that size makes it read and write.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace dtrain {

struct CopyLoop {
  std::string name;
  void (*run)(float* to, float* from, std::size_t count);
};

// Loops worth trying; `to` and `from` lie on 64-byte borders.
std::vector<CopyLoop> copy_loops();

}  // namespace dtrain
