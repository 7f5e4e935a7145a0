// An image cut into runs of pixels of one plane, for sums over all but the channels.
//
// Note [Chunk sums]: within a chunk sums are floats, across chunks doubles added in the order of
// chunks. A chunk has at most 256 pixels, so that it stays in cache for a second look and its
// float sums are short. Chunks depend on shape and layout alone, so the result does not depend on
// how many threads share them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/ops/cpu/channel_blocks.h"
#include "dtrain/core/ops/cpu/parallel.h"

namespace dtrain::ops {

struct ChannelChunk {
  std::int64_t offset;   // of its first element
  std::int64_t pixels;   // its elements are [pixels][width]
  std::int64_t channel;  // its first channel
};

class ChannelChunks {
 public:
  static constexpr std::int64_t max_pixels = 256;

  explicit ChannelChunks(const ChannelBlocks& blocks)
      : blocks_(blocks), per_plane_((blocks.pixels + max_pixels - 1) / max_pixels) {}

  const ChannelBlocks& blocks() const { return blocks_; }
  std::int64_t count() const { return blocks_.planes * per_plane_; }

  std::int64_t plane(std::int64_t index) const { return index / per_plane_; }
  ChannelChunk at(std::int64_t index) const {
    const std::int64_t plane = index / per_plane_;
    const std::int64_t first = index % per_plane_ * max_pixels;
    return {.offset = (plane * blocks_.pixels + first) * blocks_.width,
            .pixels = std::min(max_pixels, blocks_.pixels - first),
            .channel = plane % blocks_.blocks * blocks_.width};
  }

  // body(index, chunk) for each, on the context's threads.
  template <typename Body>
  void for_each(const OpContext& context, const Body& body) const {
    if (count() == 0) return;
    const std::int64_t size = std::min(max_pixels, blocks_.pixels) * blocks_.width;
    const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / size);
    parallel_ranges(context, count(), grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) body(i, at(i));
    });
  }

 private:
  ChannelBlocks blocks_;
  std::int64_t per_plane_;
};

}  // namespace dtrain::ops
