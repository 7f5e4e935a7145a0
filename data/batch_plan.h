// How a step's global batch is cut: pure arithmetic, the same on every rank.
//
// A step takes up to G samples. Position p of the batch lies in slot p / (G/V), which belongs to
// virtual rank v, and there in micro-batch (p mod (G/V)) / micro; also in a short last batch,
// whose later slots run short or empty.
#pragma once

#include <cstdint>

namespace dtrain {

// Half-open range of positions in a batch.
struct PositionRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t size() const { return last - first; }
  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

struct BatchPlan {
  std::int64_t samples = 0;  // N, of an epoch
  std::int64_t global = 0;   // G = virtual_ranks * accumulate * micro
  std::int64_t micro = 0;
  std::int64_t accumulate = 0;     // A, micro-batches of a slot
  std::int64_t virtual_ranks = 0;  // V

  std::int64_t batches_per_epoch() const { return (samples + global - 1) / global; }
  // Samples of batch b of an epoch: G, or what is left for the last.
  std::int64_t batch_size(std::int64_t batch_in_epoch) const;
  // Positions of micro-batch m of virtual rank v; empty (size 0) where the batch ran out.
  PositionRange micro_batch(std::int64_t batch_in_epoch, std::int64_t v, std::int64_t m) const;
};

}  // namespace dtrain
