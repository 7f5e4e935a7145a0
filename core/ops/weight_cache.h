// Weights in the memory orders that kernels want, packed once per step for all micro-batches and
// lanes of a process. It holds up to two copies of the convolutions' weights (forward and backward
// may want different orders), so it serves where weights are used more than once in a step.
//
//   WeightCache cache(allocator);
//   use_weight_cache(context, &cache);   // each lane's
//   cache.begin_step();                  // weights have changed
#pragma once

#include <memory>

#include "dtrain/core/device/allocator.h"
#include "dtrain/core/ops/context.h"

namespace dtrain {

class WeightCache {
 public:
  // The allocator must outlive the cache.
  explicit WeightCache(Allocator& allocator);
  ~WeightCache();

  // What was packed before is stale. No operator may be running.
  void begin_step();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Operators of the context take packed weights from `cache`; null: each packs for itself.
void use_weight_cache(OpContext& context, WeightCache* cache);

}  // namespace dtrain
