#include "dtrain/core/ops/cpu/broadcast.h"

#include <algorithm>

#include "dtrain/core/base/error.h"

namespace dtrain::ops {

namespace {

// Size of `shape` along an axis of a shape with `rank` axes, aligned at the last.
std::int64_t size_along(const Shape& shape, int axis, int rank) {
  const int own = axis - (rank - shape.rank());
  return own < 0 ? 1 : shape[own];
}

}  // namespace

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<std::int64_t, Shape::max_rank> sizes{};
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t size_a = size_along(a, axis, rank);
    const std::int64_t size_b = size_along(b, axis, rank);
    DTRAIN_CHECK(size_a == size_b || size_a == 1 || size_b == 1,
                 "shapes {} and {} do not broadcast", to_string(a), to_string(b));
    sizes[axis] = size_a == 1 ? size_b : size_a;
  }
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank)));
}

BroadcastLoops broadcast_loops(const Shape& shape, const Shape& a, const Shape& b) {
  BroadcastLoops loops;
  std::int64_t next_a = 1, next_b = 1;  // elements of the operands below the axis
  // From the innermost axis outwards; loops are reversed at the end.
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t size = shape[axis];
    if (size == 1) continue;
    const std::int64_t size_a = size_along(a, axis, shape.rank());
    const std::int64_t size_b = size_along(b, axis, shape.rank());
    const std::int64_t stride_a = size_a == 1 ? 0 : next_a;
    const std::int64_t stride_b = size_b == 1 ? 0 : next_b;
    const int last = loops.rank - 1;
    if (last >= 0 && stride_a == loops.stride_a[last] * loops.size[last] &&
        stride_b == loops.stride_b[last] * loops.size[last]) {
      loops.size[last] *= size;
    } else {
      loops.size[loops.rank] = size;
      loops.stride_a[loops.rank] = stride_a;
      loops.stride_b[loops.rank] = stride_b;
      ++loops.rank;
    }
    next_a *= size_a;
    next_b *= size_b;
  }
  if (loops.rank == 0) {
    loops.size[0] = 1;
    loops.rank = 1;
  }
  std::reverse(loops.size.begin(), loops.size.begin() + loops.rank);
  std::reverse(loops.stride_a.begin(), loops.stride_a.begin() + loops.rank);
  std::reverse(loops.stride_b.begin(), loops.stride_b.begin() + loops.rank);
  return loops;
}

}  // namespace dtrain::ops
