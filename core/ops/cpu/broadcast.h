// NumPy broadcasting, reduced to the fewest loops.
//
// Neighbouring axes along which an operand either moves or stands still alike are one loop, so that
// [N, H, W, C] + [C] is two loops and [N, C] + [N, C] one.
#pragma once

#include <array>
#include <cstdint>

#include "dtrain/core/tensor/shape.h"

namespace dtrain::ops {

// The shape to which both broadcast. Checks that there is one.
Shape broadcast_shape(const Shape& a, const Shape& b);

// Loops over a shape, outermost first, and how far the operands' elements are apart along each (0:
// the operand is broadcast). Always has at least one loop; strides of the innermost are 0 or 1.
struct BroadcastLoops {
  int rank = 0;
  std::array<std::int64_t, Shape::max_rank> size{};
  std::array<std::int64_t, Shape::max_rank> stride_a{};
  std::array<std::int64_t, Shape::max_rank> stride_b{};
};

// Of plain operands a and b that broadcast to `shape`.
BroadcastLoops broadcast_loops(const Shape& shape, const Shape& a, const Shape& b);

// Calls body(offset_a, offset_b, offset) for each run along the innermost loop; `offset` is that in
// the shape itself.
template <class Body>
void for_each_run(const BroadcastLoops& loops, const Body& body) {
  const int inner = loops.rank - 1;
  std::array<std::int64_t, Shape::max_rank> index{};
  std::int64_t a = 0, b = 0, offset = 0;
  while (true) {
    body(a, b, offset);
    offset += loops.size[inner];
    int axis = inner - 1;
    for (; axis >= 0; --axis) {
      a += loops.stride_a[axis];
      b += loops.stride_b[axis];
      if (++index[axis] < loops.size[axis]) break;
      a -= loops.stride_a[axis] * loops.size[axis];
      b -= loops.stride_b[axis] * loops.size[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace dtrain::ops
