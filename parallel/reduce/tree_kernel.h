// The inner loop of every sum across ranks: adds k arrays element by element in a given order and
// writes the result to several destinations, in one pass over memory.
//
// Blocks of a few KiB go through scratch memory on the stack, which stays in the first-level
// cache: what leaves the core is one read per input and one write per destination. Additions are
// plain IEEE additions in the order of the schedule, so the bits depend neither on the width of
// the machine's vectors nor on where a range is cut.
//
//   TreeKernel kernel(3, {{0, 1}, {0, 2}});             // (a + b) + c
//   kernel.run({a, b, c}, {result_0, result_1}, count);
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/parallel/reduce/sum_tree.h"

namespace dtrain {

class TreeKernel {
 public:
  // `additions`: slot[into] += slot[from] in this order, each input used once; the result must end
  // in slot 0. One input is a copy.
  TreeKernel(int inputs, const std::vector<Addition>& additions);

  int inputs() const { return inputs_; }

  // How results are written: `cached` leaves them in the caches, `streaming` goes past them.
  enum class Writes { cached, streaming };

  // inputs[i], outputs[j]: [count] floats. An output may be an input, else none may overlap.
  void run(std::span<const float* const> inputs, std::span<float* const> outputs, std::size_t count,
           Writes writes = Writes::cached) const;

  // One addition on blocks: scratch[into] = left + right. Operand i >= 0 is input i, operand
  // i < 0 is scratch block -1 - i.
  struct Step {
    int left = 0;
    int right = 0;
    int into = 0;
  };

 private:
  int inputs_;
  std::vector<Step> steps_;  // all but those of the last pass
  std::vector<int> last_;    // operands of the last pass: 1, 2 or 4, added pairwise
  int scratch_blocks_ = 0;
};

}  // namespace dtrain
