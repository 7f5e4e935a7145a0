#include "copy_ceiling.h"

#include <cstring>

#include "dtrain/parallel/reduce/tree_kernel.h"

namespace dtrain {

namespace {

void copy_by_library(float* to, float* from, std::size_t count) {
  std::memcpy(to, from, count * sizeof(float));
}

void copy(float* to, const float* from, std::size_t count, TreeKernel::Writes writes) {
  static const TreeKernel kernel(1, {});
  const float* const input = from;
  kernel.run({&input, 1}, {&to, 1}, count, writes);
}

void copy_cached(float* to, float* from, std::size_t count) {
  copy(to, from, count, TreeKernel::Writes::cached);
}

void copy_streaming(float* to, float* from, std::size_t count) {
  copy(to, from, count, TreeKernel::Writes::streaming);
}

// Reads and writes the same bytes, like a sum in place: no line is fetched only to be overwritten,
// and what is in the cache already is as useful as to the sum.
void update_in_place(float*, float* values, std::size_t count) {
  copy(values, values, count, TreeKernel::Writes::cached);
}

}  // namespace

std::vector<CopyLoop> copy_loops() {
  return {{"memcpy", copy_by_library},
          {"vector copy", copy_cached},
          {"vector copy, streaming stores", copy_streaming},
          {"update in place", update_in_place}};
}

}  // namespace dtrain
