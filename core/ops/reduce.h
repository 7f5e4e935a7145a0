// Sums over an arena.
//
// Note [Block sums]: a sum over a parameter is taken per fixed block of 4,096 elements counted
// from the parameter's start, then the blocks' sums are added in order, in double. Threads and
// shards cut only at block borders, so the sum does not depend on how many there are.
#pragma once

#include <cstdint>
#include <span>

namespace dtrain::ops {

inline constexpr std::int64_t block_elements = 4096;

// Sum of squares of at most one block.
double block_sum_of_squares(std::span<const float> block);

}  // namespace dtrain::ops
