#include <algorithm>

#include "dtrain/core/ops/cpu/broadcast.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/elementwise.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/sum_to_shape.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// sums += x, elementwise.
void add_run(std::size_t n, const float* x, double* sums) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto v = hn::PromoteTo(wide, part.load(d, x + i));
    part.store(hn::Add(part.load(wide, sums + i), v), wide, sums + i);
  });
}

double sum_of_run(std::size_t n, const float* x) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  auto lanes = hn::Zero(wide);
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    lanes = hn::Add(lanes, hn::PromoteTo(wide, part.load(d, x + i)));
  });
  return sum_of_lanes(wide, lanes);
}

// loops: over x, with the sums as operand a. x is read in memory order.
void sum_kernel(const BroadcastLoops& loops, const float* x, double* sums) {
  const int inner = loops.rank - 1;
  const std::size_t n = static_cast<std::size_t>(loops.size[inner]);
  const bool kept = loops.stride_a[inner] != 0;
  for_each_run(loops, [&](std::int64_t sum, std::int64_t, std::int64_t offset) {
    if (kept) {
      add_run(n, x + offset, sums + sum);
    } else {
      sums[sum] += sum_of_run(n, x + offset);
    }
  });
}

void round_kernel(std::size_t n, const double* sums, float* y) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  for_each_vector(wide, n, [&](std::size_t i, auto part) {
    part.store(hn::DemoteTo(d, part.load(wide, sums + i)), d, y + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(sum_kernel);
HWY_EXPORT(round_kernel);

// Sums are kept in double and x is read in memory order, so their order is a function of the shapes
// and the instruction set alone; it runs on one thread.
Tensor sum_to_shape(OpContext& context, const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check_plain(x, "sum_to_shape");
  DTRAIN_CHECK(shape.rank() <= x.shape().rank() &&
                   (x.elements() == 0 || broadcast_shape(x.shape(), shape) == x.shape()),
               "sum_to_shape: {} does not broadcast to {}", to_string(shape), to_string(x.shape()));
  const Tensor y = Tensor::zeros(shape, DType::f32, context.allocator(), "sum_to_shape");
  if (x.elements() == 0) return y;
  const std::size_t elements = static_cast<std::size_t>(shape.elements());
  const MemoryBlock block = context.allocator().allocate(elements * sizeof(double), "sum_to_shape");
  double* sums = static_cast<double*>(block.data());
  std::fill_n(sums, elements, 0.0);
  HWY_DYNAMIC_DISPATCH(sum_kernel)
  (broadcast_loops(x.shape(), shape, x.shape()), x.data<float>(), sums);
  HWY_DYNAMIC_DISPATCH(round_kernel)(elements, sums, y.data<float>());
  return y;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
