// An image, or a matrix whose columns are channels, as a kernel for channel blocks sees it: see
// Note [Channel blocks].
#pragma once

#include <cstdint>

#include "dtrain/core/base/error.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// Memory is [planes][pixels][width]. Plane p holds channels [p % blocks * width, ... + width).
struct ChannelBlocks {
  std::int64_t planes;
  std::int64_t pixels;
  std::int64_t width;
  std::int64_t blocks;

  std::int64_t channels() const { return blocks * width; }
  // How often a channel occurs.
  std::int64_t count() const { return blocks == 0 ? 0 : planes / blocks * pixels; }
};

// All axes but the last are pixels. A plain tensor is one plane, so that its pixels are one run.
inline ChannelBlocks channel_blocks(const Tensor& x) {
  const Shape& shape = x.shape();
  DTRAIN_CHECK(shape.rank() >= 2, "channels of {}", to_string(shape));
  const std::int64_t channels = shape[-1];
  const std::int64_t width = x.layout().channel_block == 0 ? channels : x.layout().channel_block;
  DTRAIN_CHECK(width > 0 && channels % width == 0, "{} channels in blocks of {}", channels, width);
  const std::int64_t blocks = channels / width;
  if (blocks == 1) return {1, x.elements() / channels, channels, 1};
  const std::int64_t images = shape[0];
  return {images * blocks, images == 0 ? 0 : x.elements() / channels / images, width, blocks};
}

}  // namespace dtrain::ops
