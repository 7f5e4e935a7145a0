// What all optimizers do around their kernel: check the blocks, and cut the work among threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

#include "dtrain/core/optim/optimizer.h"

namespace dtrain {

// Throws InternalError unless there are `states` state blocks and everything is long enough.
void check_blocks(std::span<const float> weights, std::span<const float> gradients,
                  std::span<const std::span<float>> state, std::size_t states,
                  std::span<const ParameterSegment> segments);

// Calls body(segment, offset, size) for pieces that together are the segments, side by side on the
// pool's threads. Pieces begin at multiples of ops::block_elements from their segment's start.
void sweep(std::span<const ParameterSegment> segments, ThreadPool& pool,
           const std::function<void(const ParameterSegment& segment, std::int64_t offset,
                                    std::int64_t size)>& body);

}  // namespace dtrain
