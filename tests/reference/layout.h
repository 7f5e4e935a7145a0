// Where elements of images lie in memory: see Note [Channel blocks].
#pragma once

#include <cstdint>

#include "dtrain/core/tensor/shape.h"

namespace dtrain::reference {

// Place in memory of element (n, h, w, c) of an image of shape [N, H, W, C].
inline std::int64_t image_offset(const Shape& shape, Layout layout, std::int64_t n, std::int64_t h,
                                 std::int64_t w, std::int64_t c) {
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  const std::int64_t block = layout.channel_block == 0 ? channels : layout.channel_block;
  return (((n * (channels / block) + c / block) * height + h) * width + w) * block + c % block;
}

}  // namespace dtrain::reference
