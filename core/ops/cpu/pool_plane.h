// What pooling kernels are told: the windows of one plane of an image.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::ops {

// Inputs [begin, end) of one output along one axis, without padding; `origin` is where the window
// would begin with padding.
struct Window {
  std::int32_t origin;
  std::int32_t begin;
  std::int32_t end;
};

// One plane of an image: x: [height][width][channels], y: [out_height][out_width][channels].
struct Plane {
  std::int64_t height;
  std::int64_t width;
  std::int64_t out_height;
  std::int64_t out_width;
  std::int64_t channels;
  const Window* rows;     // [out_height]
  const Window* columns;  // [out_width]
  std::int64_t kernel;    // columns of a window; of max pooling
  bool disjoint;          // windows share no input
  bool covering;          // windows leave no input out
  float divisor;          // of average pooling; 0: elements of the window

  std::size_t x_elements() const { return static_cast<std::size_t>(height * width * channels); }
};

}  // namespace dtrain::ops
