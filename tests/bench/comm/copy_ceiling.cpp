#include "copy_ceiling.h"

#include <cstring>

#include "dtrain/parallel/reduce/tree_kernel.h"

namespace dtrain {

namespace {

void copy_by_library(float* to, const float* from, std::size_t count) {
  std::memcpy(to, from, count * sizeof(float));
}

void copy(float* to, const float* from, std::size_t count, TreeKernel::Writes writes) {
  static const TreeKernel kernel(1, {});
  kernel.run({&from, 1}, {&to, 1}, count, writes);
}

void copy_cached(float* to, const float* from, std::size_t count) {
  copy(to, from, count, TreeKernel::Writes::cached);
}

void copy_streaming(float* to, const float* from, std::size_t count) {
  copy(to, from, count, TreeKernel::Writes::streaming);
}

// Reads and writes the same bytes: no line is fetched only to be overwritten.
void update_in_place(float* to, const float*, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += 1.f;
}

}  // namespace

std::vector<CopyLoop> copy_loops() {
  return {{"memcpy", copy_by_library},
          {"vector copy", copy_cached},
          {"vector copy, streaming stores", copy_streaming},
          {"update in place", update_in_place}};
}

}  // namespace dtrain
