#include "dtrain/core/ops/shape_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"

namespace dtrain::ops {

namespace {

int checked_axis(const Shape& shape, int axis, std::string_view who) {
  const int from_start = axis < 0 ? axis + shape.rank() : axis;
  DTRAIN_CHECK(from_start >= 0 && from_start < shape.rank(), "{}: axis {} of {}", who, axis,
               to_string(shape));
  return from_start;
}

std::int64_t product(const Shape& shape, int first, int last) {
  std::int64_t result = 1;
  for (int axis = first; axis < last; ++axis) result *= shape[axis];
  return result;
}

Shape with_size(const Shape& shape, int axis, std::int64_t size) {
  std::vector<std::int64_t> sizes(shape.sizes().begin(), shape.sizes().end());
  sizes[static_cast<std::size_t>(axis)] = size;
  return Shape(sizes);
}

// A tensor as [outer][inner bytes], cut at an axis.
struct Runs {
  std::int64_t outer;
  std::size_t bytes;  // of the axis and all behind it
  std::size_t step;   // bytes of one element of the axis
};

Runs runs_of(const Tensor& x, int axis) {
  const Shape& shape = x.shape();
  const auto step =
      static_cast<std::size_t>(product(shape, axis + 1, shape.rank())) * size_of(x.dtype());
  return {product(shape, 0, axis), step * static_cast<std::size_t>(shape[axis]), step};
}

std::byte* bytes_of(const Tensor& x) {
  return static_cast<std::byte*>(x.raw());
}

// count runs of `size` bytes, from and to memory of these strides.
void copy_runs(OpContext& context, std::int64_t count, std::size_t size, const std::byte* from,
               std::size_t from_stride, std::byte* to, std::size_t to_stride) {
  if (size == 0) return;
  const std::int64_t grain =
      std::max<std::int64_t>(1, elements_per_thread * 4 / static_cast<std::int64_t>(size));
  parallel_ranges(context, count, grain, [&](std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      std::memcpy(to + i * to_stride, from + i * from_stride, size);
    }
  });
}

// to: [columns][rows] = from: [rows][columns] transposed, in squares whose lines stay in cache.
// Neighbours in a row of `to` are `to_step` elements apart, rows of `from` `from_stride`.
template <typename T>
void transpose_matrix(std::int64_t rows, std::int64_t columns, const T* from,
                      std::int64_t from_stride, T* to, std::int64_t to_stride) {
  constexpr std::int64_t side = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += side) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += side) {
      for (std::int64_t c = c0; c < std::min(columns, c0 + side); ++c) {
        for (std::int64_t r = r0; r < std::min(rows, r0 + side); ++r) {
          to[c * to_stride + r] = from[r * from_stride + c];
        }
      }
    }
  }
}

}  // namespace

Tensor transpose(OpContext& context, const Tensor& x, int a, int b) {
  check_plain(x, "transpose");
  a = checked_axis(x.shape(), a, "transpose");
  b = checked_axis(x.shape(), b, "transpose");
  if (a == b) return x;
  if (a > b) std::swap(a, b);
  const Shape& shape = x.shape();
  const Tensor y = Tensor::empty(with_size(with_size(shape, a, shape[b]), b, shape[a]), x.dtype(),
                                 context.allocator(), "transpose");
  if (x.elements() == 0) return y;
  // x: [outer][of_a][middle][of_b][inner]; y: [outer][of_b][middle][of_a][inner].
  const std::int64_t outer = product(shape, 0, a), of_a = shape[a];
  const std::int64_t middle = product(shape, a + 1, b), of_b = shape[b];
  const std::int64_t inner = product(shape, b + 1, shape.rank());
  const std::byte* from = bytes_of(x);
  std::byte* to = bytes_of(y);
  const std::size_t element = size_of(x.dtype());
  const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / (of_a * of_b * inner));
  parallel_ranges(context, outer * middle, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t o = i / middle, m = i % middle;
      const std::int64_t at_x = (o * of_a * middle + m) * of_b * inner;
      const std::int64_t at_y = (o * of_b * middle + m) * of_a * inner;
      if (inner == 1 && element == 4) {
        transpose_matrix(of_a, of_b, reinterpret_cast<const std::uint32_t*>(from) + at_x,
                         middle * of_b, reinterpret_cast<std::uint32_t*>(to) + at_y, middle * of_a);
        continue;
      }
      const auto run = static_cast<std::size_t>(inner) * element;
      for (std::int64_t r = 0; r < of_a; ++r) {
        for (std::int64_t c = 0; c < of_b; ++c) {
          const std::int64_t source = at_x + (r * middle * of_b + c) * inner;
          const std::int64_t target = at_y + (c * middle * of_a + r) * inner;
          std::memcpy(to + static_cast<std::size_t>(target) * element,
                      from + static_cast<std::size_t>(source) * element, run);
        }
      }
    }
  });
  return y;
}

Tensor concat(OpContext& context, std::span<const Tensor> parts, int axis) {
  DTRAIN_CHECK(!parts.empty(), "concat of nothing");
  const Shape& shape = parts.front().shape();
  axis = checked_axis(shape, axis, "concat");
  std::int64_t size = 0;
  for (const Tensor& part : parts) {
    check_plain(part, "concat");
    DTRAIN_CHECK(part.dtype() == parts.front().dtype() && part.shape().rank() == shape.rank() &&
                     with_size(part.shape(), axis, 0) == with_size(shape, axis, 0),
                 "concat along axis {} of {} and {}", axis, to_string(shape),
                 to_string(part.shape()));
    size += part.shape()[axis];
  }
  const Tensor y = Tensor::empty(with_size(shape, axis, size), parts.front().dtype(),
                                 context.allocator(), "concat");
  const Runs whole = runs_of(y, axis);
  std::byte* to = bytes_of(y);
  for (const Tensor& part : parts) {
    const Runs runs = runs_of(part, axis);
    copy_runs(context, runs.outer, runs.bytes, bytes_of(part), runs.bytes, to, whole.bytes);
    to += runs.bytes;
  }
  return y;
}

Tensor slice(OpContext& context, const Tensor& x, int axis, std::int64_t first, std::int64_t last) {
  check_plain(x, "slice");
  axis = checked_axis(x.shape(), axis, "slice");
  DTRAIN_CHECK(first >= 0 && first <= last && last <= x.shape()[axis],
               "slice [{}, {}) along axis {} of {}", first, last, axis, to_string(x.shape()));
  const Tensor y = Tensor::empty(with_size(x.shape(), axis, last - first), x.dtype(),
                                 context.allocator(), "slice");
  const Runs from = runs_of(x, axis), to = runs_of(y, axis);
  copy_runs(context, from.outer, to.bytes,
            bytes_of(x) + static_cast<std::size_t>(first) * from.step, from.bytes, bytes_of(y),
            to.bytes);
  return y;
}

Tensor slice_backward(OpContext& context, const Tensor& dy, const Shape& x_shape, int axis,
                      std::int64_t first) {
  check_plain(dy, "slice_backward");
  axis = checked_axis(x_shape, axis, "slice_backward");
  DTRAIN_CHECK(first >= 0 && first + dy.shape()[axis] <= x_shape[axis] &&
                   with_size(dy.shape(), axis, 0) == with_size(x_shape, axis, 0),
               "slice_backward: {} at {} along axis {} of {}", to_string(dy.shape()), first, axis,
               to_string(x_shape));
  const Tensor dx = Tensor::zeros(x_shape, dy.dtype(), context.allocator(), "slice_backward");
  const Runs from = runs_of(dy, axis), to = runs_of(dx, axis);
  copy_runs(context, from.outer, from.bytes, bytes_of(dy), from.bytes,
            bytes_of(dx) + static_cast<std::size_t>(first) * to.step, to.bytes);
  return dx;
}

}  // namespace dtrain::ops
