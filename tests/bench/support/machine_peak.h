// What the machine can do at most, to compare operators with: multiply-adds in registers, and
// reads and writes of memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace dtrain {

// GFLOP/s of fused multiply-adds of floats in registers, on `threads` threads at once.
double measure_peak_gflops(int threads);

// Walks over as many float arrays as an operator reads and writes, and does next to nothing else:
// element i of each `writes` array is the sum of elements i of all `reads`. An array may stand in
// both, as the weights of an optimizer do. Streams past the cache if `nontemporal`.
class Traffic {
 public:
  Traffic(std::vector<std::span<const float>> reads, std::vector<std::span<float>> writes,
          bool nontemporal);
  // Once over elements [begin, end), a multiple of 16 each.
  void run(std::size_t begin, std::size_t end) const;
  std::size_t elements() const;

 private:
  std::vector<std::span<const float>> reads_;
  std::vector<std::span<float>> writes_;
  bool nontemporal_;
};

}  // namespace dtrain
