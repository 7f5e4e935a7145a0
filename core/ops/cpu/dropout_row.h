// What the dropout kernel works on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::ops {

// Random words are made a chunk at a time; a chunk stays in the first-level cache.
inline constexpr std::size_t chunk_words = 2048;

// One sample: `elements` values in [pixels, channels] order, in memory as [channels / block,
// pixels, block]. A plain sample is one pixel of one block.
struct DropoutRow {
  const float* x;
  float* y;
  std::size_t pixels;
  std::size_t channels;
  std::size_t block;
  std::uint64_t key;
  std::uint64_t position;
  float p;
};

}  // namespace dtrain::ops
