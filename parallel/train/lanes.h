// The lanes of a process: virtual ranks that run side by side, each with its own operator context
// and memory, all reading one copy of the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dtrain/core/base/thread_pool.h"
#include "dtrain/core/device/allocator.h"
#include "dtrain/core/ops/context.h"
#include "dtrain/core/ops/weight_cache.h"

namespace dtrain {

class Lanes {
 public:
  // `cores` threads in all; every lane computes with `threads` of them (T of the recipe).
  Lanes(int lanes, int cores, int threads, Convolution convolution = Convolution::automatic);

  int size() const { return static_cast<int>(lanes_.size()); }
  // Runs body(lane, context) for lanes [0, count) side by side. Rethrows the first error.
  void run(int count, const std::function<void(int lane, OpContext& context)>& body);
  // All cores of the process, for loops over an arena.
  ThreadPool& pool() { return pool_; }
  // Between the two, weights are packed once for all lanes: see WeightCache.
  void begin_step_with_cached_weights();
  void end_step_with_cached_weights();
  // Gives the memory back that no tensor uses.
  void release_cached();
  // Peak bytes of all lanes' tensors.
  std::uint64_t peak_bytes() const;

 private:
  struct Lane {
    Lane(int index, int threads, Convolution convolution);
    Allocator allocator;
    OpContext context;
  };
  Allocator packed_weights_{"packed weights"};
  WeightCache weights_{packed_weights_};
  std::vector<std::unique_ptr<Lane>> lanes_;
  ThreadPool pool_;
};

}  // namespace dtrain
