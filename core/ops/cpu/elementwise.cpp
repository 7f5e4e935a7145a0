#include "dtrain/core/ops/elementwise.h"

#include <algorithm>
#include <string_view>

#include "dtrain/core/ops/cpu/broadcast.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// y = f(a, b), each operand moving by `stride` 0 or 1.
template <class F>
HWY_INLINE void broadcast_run(std::size_t n, const float* a, std::int64_t stride_a, const float* b,
                              std::int64_t stride_b, float* y, const F& f) {
  if (stride_a != 0 && stride_b != 0) {
    map(n, a, b, y, [&f](auto, auto u, auto v) { return f(u, v); });
  } else if (stride_a != 0) {
    map(n, a, y, [&f, b](auto d, auto u) { return f(u, hn::Set(d, *b)); });
  } else if (stride_b != 0) {
    map(n, b, y, [&f, a](auto d, auto v) { return f(hn::Set(d, *a), v); });
  } else {
    map(n, y, y, [&f, a, b](auto d, auto) { return f(hn::Set(d, *a), hn::Set(d, *b)); });
  }
}

struct AddVectors {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct MultiplyVectors {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};

template <class F>
HWY_INLINE void broadcast_all(const BroadcastLoops& loops, const float* a, const float* b, float* y,
                              const F& f) {
  const int inner = loops.rank - 1;
  const std::size_t n = static_cast<std::size_t>(loops.size[inner]);
  for_each_run(loops, [&](std::int64_t offset_a, std::int64_t offset_b, std::int64_t offset) {
    broadcast_run(n, a + offset_a, loops.stride_a[inner], b + offset_b, loops.stride_b[inner],
                  y + offset, f);
  });
}

void add_kernel(const BroadcastLoops& loops, const float* a, const float* b, float* y) {
  broadcast_all(loops, a, b, y, AddVectors());
}

void multiply_kernel(const BroadcastLoops& loops, const float* a, const float* b, float* y) {
  broadcast_all(loops, a, b, y, MultiplyVectors());
}

void add_in_place_kernel(std::size_t n, float* y, const float* x) {
  map(n, y, x, y, [](auto, auto u, auto v) { return hn::Add(u, v); });
}

void scale_kernel(std::size_t n, const float* x, float factor, float* y) {
  map(n, x, y, [factor](auto d, auto v) { return hn::Mul(v, hn::Set(d, factor)); });
}

// The magnitudes' bits order as integers do, and those of infinity are the smallest of what is not
// finite.
bool all_finite_kernel(std::size_t n, const float* x) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d_signed;
  auto largest = hn::Zero(d_signed);
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    largest = hn::Max(largest, hn::BitCast(d_signed, hn::Abs(part.load(d, x + i))));
  });
  return hn::GetLane(hn::MaxOfLanes(d_signed, largest)) < 0x7F800000;
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(add_kernel);
HWY_EXPORT(multiply_kernel);
HWY_EXPORT(add_in_place_kernel);
HWY_EXPORT(scale_kernel);
HWY_EXPORT(all_finite_kernel);

namespace {

using BroadcastKernel = void (*)(const BroadcastLoops&, const float*, const float*, float*);

// Equal shapes and layouts are one loop over memory, in whatever layout.
Tensor binary(OpContext& context, const Tensor& a, const Tensor& b, std::string_view who,
              BroadcastKernel kernel) {
  BroadcastLoops loops;
  Tensor y;
  if (a.shape() == b.shape() && a.layout() == b.layout()) {
    y = empty_like(context, a, who);
    const Shape flat{a.elements()};
    loops = broadcast_loops(flat, flat, flat);
  } else {
    check_plain(a, who);
    check_plain(b, who);
    const Shape shape = broadcast_shape(a.shape(), b.shape());
    y = Tensor::empty(shape, DType::f32, context.allocator(), who);
    loops = broadcast_loops(shape, a.shape(), b.shape());
  }
  if (y.elements() == 0) return y;
  const float* from_a = a.data<float>();
  const float* from_b = b.data<float>();
  float* to = y.data<float>();
  // The outermost loop is shared out.
  const std::int64_t below = y.elements() / loops.size[0];
  const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / below);
  parallel_ranges(context, loops.size[0], grain, [&](std::int64_t first, std::int64_t last) {
    BroadcastLoops part = loops;
    part.size[0] = last - first;
    kernel(part, from_a + first * loops.stride_a[0], from_b + first * loops.stride_b[0],
           to + first * below);
  });
  return y;
}

}  // namespace

Tensor add(OpContext& context, const Tensor& a, const Tensor& b) {
  return binary(context, a, b, "add", HWY_DYNAMIC_DISPATCH(add_kernel));
}

Tensor multiply(OpContext& context, const Tensor& a, const Tensor& b) {
  return binary(context, a, b, "multiply", HWY_DYNAMIC_DISPATCH(multiply_kernel));
}

void add_in_place(const Tensor& y, const Tensor& x) {
  check_alike(y, x, "add_in_place");
  add_in_place(y.values<float>(), x.values<float>());
}

void add_in_place(const OpContext& context, const Tensor& y, const Tensor& x) {
  check_alike(y, x, "add_in_place");
  float* to = y.data<float>();
  const float* from = x.data<float>();
  parallel_ranges(context, x.elements(), elements_per_thread,
                  [=](std::int64_t first, std::int64_t last) {
                    HWY_DYNAMIC_DISPATCH(add_in_place_kernel)
                    (static_cast<std::size_t>(last - first), to + first, from + first);
                  });
}

void add_in_place(std::span<float> y, std::span<const float> x) {
  DTRAIN_CHECK(y.size() == x.size(), "{} values added to {}", x.size(), y.size());
  HWY_DYNAMIC_DISPATCH(add_in_place_kernel)(y.size(), y.data(), x.data());
}

Tensor scale(OpContext& context, const Tensor& x, float factor) {
  const Tensor y = empty_like(context, x, "scale");
  const float* from = x.data<float>();
  float* to = y.data<float>();
  parallel_ranges(context, x.elements(), elements_per_thread,
                  [=](std::int64_t first, std::int64_t last) {
                    HWY_DYNAMIC_DISPATCH(scale_kernel)
                    (static_cast<std::size_t>(last - first), from + first, factor, to + first);
                  });
  return y;
}

bool all_finite(std::span<const float> values) {
  // In blocks, so that what is not finite is soon found.
  constexpr std::size_t block = 65536;
  for (std::size_t i = 0; i < values.size(); i += block) {
    const std::size_t n = std::min(block, values.size() - i);
    if (!HWY_DYNAMIC_DISPATCH(all_finite_kernel)(n, values.data() + i)) return false;
  }
  return true;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
