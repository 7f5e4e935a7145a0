#include "dtrain/core/ops/activation.h"

#include <limits>

#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
#include "dtrain/core/ops/cpu/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// x <= 0 rather than a maximum, so that NaN stays NaN.
void relu_kernel(std::size_t n, const float* x, float* y) {
  map(n, x, y, [](auto d, auto v) { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v); });
}

void relu_backward_kernel(std::size_t n, const float* y, const float* dy, float* dx) {
  map(n, y, dy, dx,
      [](auto d, auto v, auto dv) { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), dv); });
}

void sigmoid_kernel(std::size_t n, const float* x, float* y) {
  map(n, x, y, [](auto d, auto v) { return sigmoid(d, v); });
}

void sigmoid_backward_kernel(std::size_t n, const float* y, const float* dy, float* dx) {
  map(n, y, dy, dx, [](auto d, auto v, auto dv) {
    return hn::Mul(dv, hn::Mul(v, hn::Sub(hn::Set(d, 1.0f), v)));
  });
}

void tanh_kernel(std::size_t n, const float* x, float* y) {
  map(n, x, y, [](auto d, auto v) { return tanh(d, v); });
}

void tanh_backward_kernel(std::size_t n, const float* y, const float* dy, float* dx) {
  // (1 - y)(1 + y) loses less than 1 - y * y where |y| is near 1.
  map(n, y, dy, dx, [](auto d, auto v, auto dv) {
    const auto one = hn::Set(d, 1.0f);
    return hn::Mul(dv, hn::Mul(hn::Sub(one, v), hn::Add(one, v)));
  });
}

// The normal distribution's Phi(x).
template <class D>
HWY_INLINE hn::Vec<D> normal_cdf(D d, hn::Vec<D> x) {
  const auto half = hn::Set(d, 0.5f);
  return hn::MulAdd(half, erf(d, hn::Mul(x, hn::Set(d, 0.70710678f))), half);
}

void gelu_kernel(std::size_t n, const float* x, float* y) {
  map(n, x, y, [](auto d, auto v) { return hn::Mul(v, normal_cdf(d, v)); });
}

void gelu_backward_kernel(std::size_t n, const float* x, const float* dy, float* dx) {
  map(n, x, dy, dx, [](auto d, auto v, auto dv) {
    const auto density =
        hn::Mul(hn::Set(d, 0.39894228f), exp(d, hn::Mul(hn::Set(d, -0.5f), hn::Mul(v, v))));
    return hn::Mul(dv, hn::MulAdd(v, density, normal_cdf(d, v)));
  });
}

// 0.5 (1 + tanh(u)) is sigmoid(2 u); this is 2 u and its slope.
template <class D>
HWY_INLINE hn::Vec<D> gelu_argument(D d, hn::Vec<D> x) {
  const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.071354816f), hn::Set(d, 1.5957691f));
  return hn::Mul(x, cubic);
}

// 1 / (1 + exp(-x)) in fewer operations than sigmoid(); infinite exponentials give 0.
template <class D>
HWY_INLINE hn::Vec<D> logistic(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

void gelu_tanh_kernel(std::size_t n, const float* x, float* y) {
  map(n, x, y, [](auto d, auto v) { return hn::Mul(v, logistic(d, gelu_argument(d, v))); });
}

void gelu_tanh_backward_kernel(std::size_t n, const float* x, const float* dy, float* dx,
                               float* y) {
  const hn::ScalableTag<float> d;
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto v = part.load(d, x + i);
    const auto s = logistic(d, gelu_argument(d, v));
    if (y != nullptr) part.store(hn::Mul(v, s), d, y + i);
    const auto slope = hn::MulAdd(hn::Mul(v, v), hn::Set(d, 0.21406445f), hn::Set(d, 1.5957691f));
    const auto inner = hn::Mul(hn::Mul(v, slope), hn::NegMulAdd(s, s, s));
    part.store(hn::Mul(part.load(d, dy + i), hn::Add(s, inner)), d, dx + i);
  });
}

void silu_kernel(std::size_t n, const float* x, float* y) {
  map(n, x, y, [](auto d, auto v) { return hn::Mul(v, sigmoid(d, v)); });
}

void silu_backward_kernel(std::size_t n, const float* x, const float* dy, float* dx) {
  map(n, x, dy, dx, [](auto d, auto v, auto dv) {
    const auto s = sigmoid(d, v);
    return hn::Mul(dv, hn::MulAdd(v, hn::NegMulAdd(s, s, s), s));
  });
}

// The sum of a vector of floats, as doubles.
template <class D>
HWY_INLINE hn::Vec<DoubleTag> widening_sum(D, hn::Vec<D> v) {
  const hn::Half<D> half;
  const DoubleTag wide;
  return hn::Add(hn::PromoteTo(wide, hn::LowerHalf(half, v)),
                 hn::PromoteTo(wide, hn::UpperHalf(half, v)));
}

void softmax_kernel(std::size_t rows, std::size_t n, const float* x, float* y) {
  const hn::ScalableTag<float> d;
  const DoubleTag wide;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t row = 0; row < rows; ++row, x += n, y += n) {
    auto max_lanes = lowest;
    for_each_vector(d, n, [&](std::size_t i, auto part) {
      max_lanes = hn::Max(max_lanes, part.or_else(d, part.load(d, x + i), lowest));
    });
    const auto max = hn::MaxOfLanes(d, max_lanes);
    auto sum_lanes = hn::Zero(wide);
    for_each_vector(d, n, [&](std::size_t i, auto part) {
      const auto e = exp(d, hn::Sub(part.load(d, x + i), max));
      part.store(e, d, y + i);
      sum_lanes = hn::Add(sum_lanes, widening_sum(d, part.or_else(d, e, hn::Zero(d))));
    });
    const auto sum = hn::Set(d, static_cast<float>(sum_of_lanes(wide, sum_lanes)));
    map(n, y, y, [sum](auto, auto v) { return hn::Div(v, sum); });
  }
}

void softmax_backward_kernel(std::size_t rows, std::size_t n, const float* y, const float* dy,
                             float* dx) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  for (std::size_t row = 0; row < rows; ++row, y += n, dy += n, dx += n) {
    auto lanes = hn::Zero(wide);
    for_each_vector(d, n, [&](std::size_t i, auto part) {
      lanes = hn::MulAdd(hn::PromoteTo(wide, part.load(d, y + i)),
                         hn::PromoteTo(wide, part.load(d, dy + i)), lanes);
    });
    const auto dot = hn::Set(wide, sum_of_lanes(wide, lanes));
    for_each_vector(d, n, [&](std::size_t i, auto part) {
      const auto difference = hn::Sub(hn::PromoteTo(wide, part.load(d, dy + i)), dot);
      const auto product = hn::Mul(hn::PromoteTo(wide, part.load(d, y + i)), difference);
      part.store(hn::DemoteTo(d, product), d, dx + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(relu_kernel);
HWY_EXPORT(relu_backward_kernel);
HWY_EXPORT(sigmoid_kernel);
HWY_EXPORT(sigmoid_backward_kernel);
HWY_EXPORT(tanh_kernel);
HWY_EXPORT(tanh_backward_kernel);
HWY_EXPORT(gelu_kernel);
HWY_EXPORT(gelu_backward_kernel);
HWY_EXPORT(gelu_tanh_kernel);
HWY_EXPORT(gelu_tanh_backward_kernel);
HWY_EXPORT(silu_kernel);
HWY_EXPORT(silu_backward_kernel);
HWY_EXPORT(softmax_kernel);
HWY_EXPORT(softmax_backward_kernel);

namespace {

Tensor elementwise(OpContext& context, const Tensor& x, std::string_view who,
                   void (*kernel)(std::size_t, const float*, float*)) {
  const Tensor y = empty_like(context, x, who);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  parallel_ranges(context, x.elements(), elements_per_thread,
                  [=](std::int64_t first, std::int64_t last) {
                    kernel(static_cast<std::size_t>(last - first), from + first, to + first);
                  });
  return y;
}

Tensor elementwise(OpContext& context, const Tensor& a, const Tensor& b, std::string_view who,
                   void (*kernel)(std::size_t, const float*, const float*, float*)) {
  check_alike(a, b, who);
  const Tensor y = empty_like(context, a, who);
  const float* from_a = a.data<float>();
  const float* from_b = b.data<float>();
  float* to = y.data<float>();
  parallel_ranges(
      context, a.elements(), elements_per_thread, [=](std::int64_t first, std::int64_t last) {
        kernel(static_cast<std::size_t>(last - first), from_a + first, from_b + first, to + first);
      });
  return y;
}

// body(first_row, last_row, columns) over the rows of a softmax.
template <class Body>
void over_rows(OpContext& context, const Tensor& x, std::string_view who, const Body& body) {
  check_plain(x, who);
  DTRAIN_CHECK(x.shape().rank() >= 1, "{} of a scalar", who);
  const std::int64_t columns = x.shape()[-1];
  if (x.elements() == 0) return;
  const std::int64_t grain = (elements_per_thread + columns - 1) / columns;
  parallel_ranges(context, x.elements() / columns, grain,
                  [&](std::int64_t first, std::int64_t last) { body(first, last, columns); });
}

}  // namespace

Tensor relu(OpContext& context, const Tensor& x) {
  return elementwise(context, x, "relu", HWY_DYNAMIC_DISPATCH(relu_kernel));
}

Tensor relu_backward(OpContext& context, const Tensor& y, const Tensor& dy) {
  return elementwise(context, y, dy, "relu_backward", HWY_DYNAMIC_DISPATCH(relu_backward_kernel));
}

Tensor gelu(OpContext& context, const Tensor& x) {
  return elementwise(context, x, "gelu", HWY_DYNAMIC_DISPATCH(gelu_kernel));
}

Tensor gelu_backward(OpContext& context, const Tensor& x, const Tensor& dy) {
  return elementwise(context, x, dy, "gelu_backward", HWY_DYNAMIC_DISPATCH(gelu_backward_kernel));
}

Tensor gelu_tanh(OpContext& context, const Tensor& x) {
  return elementwise(context, x, "gelu_tanh", HWY_DYNAMIC_DISPATCH(gelu_tanh_kernel));
}

Tensor gelu_tanh_backward(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& y) {
  check_alike(x, dy, "gelu_tanh_backward");
  if (y.defined()) check_alike(x, y, "gelu_tanh_backward");
  const Tensor dx = empty_like(context, x, "gelu_tanh_backward");
  const float* from = x.data<float>();
  const float* from_dy = dy.data<float>();
  float* to = dx.data<float>();
  float* again = y.defined() ? y.data<float>() : nullptr;
  parallel_ranges(context, x.elements(), elements_per_thread,
                  [=](std::int64_t first, std::int64_t last) {
                    HWY_DYNAMIC_DISPATCH(gelu_tanh_backward_kernel)
                    (static_cast<std::size_t>(last - first), from + first, from_dy + first,
                     to + first, again == nullptr ? nullptr : again + first);
                  });
  return dx;
}

Tensor silu(OpContext& context, const Tensor& x) {
  return elementwise(context, x, "silu", HWY_DYNAMIC_DISPATCH(silu_kernel));
}

Tensor silu_backward(OpContext& context, const Tensor& x, const Tensor& dy) {
  return elementwise(context, x, dy, "silu_backward", HWY_DYNAMIC_DISPATCH(silu_backward_kernel));
}

Tensor sigmoid(OpContext& context, const Tensor& x) {
  return elementwise(context, x, "sigmoid", HWY_DYNAMIC_DISPATCH(sigmoid_kernel));
}

Tensor sigmoid_backward(OpContext& context, const Tensor& y, const Tensor& dy) {
  return elementwise(context, y, dy, "sigmoid_backward",
                     HWY_DYNAMIC_DISPATCH(sigmoid_backward_kernel));
}

Tensor tanh(OpContext& context, const Tensor& x) {
  return elementwise(context, x, "tanh", HWY_DYNAMIC_DISPATCH(tanh_kernel));
}

Tensor tanh_backward(OpContext& context, const Tensor& y, const Tensor& dy) {
  return elementwise(context, y, dy, "tanh_backward", HWY_DYNAMIC_DISPATCH(tanh_backward_kernel));
}

Tensor softmax(OpContext& context, const Tensor& x) {
  const Tensor y = empty_like(context, x, "softmax");
  const float* from = x.data<float>();
  float* to = y.data<float>();
  over_rows(context, x, "softmax",
            [&](std::int64_t first, std::int64_t last, std::int64_t columns) {
              HWY_DYNAMIC_DISPATCH(softmax_kernel)
              (static_cast<std::size_t>(last - first), static_cast<std::size_t>(columns),
               from + first * columns, to + first * columns);
            });
  return y;
}

Tensor softmax_backward(OpContext& context, const Tensor& y, const Tensor& dy) {
  check_alike(y, dy, "softmax_backward");
  const Tensor dx = empty_like(context, y, "softmax_backward");
  const float* from_y = y.data<float>();
  const float* from_dy = dy.data<float>();
  float* to = dx.data<float>();
  over_rows(context, y, "softmax_backward",
            [&](std::int64_t first, std::int64_t last, std::int64_t columns) {
              HWY_DYNAMIC_DISPATCH(softmax_backward_kernel)
              (static_cast<std::size_t>(last - first), static_cast<std::size_t>(columns),
               from_y + first * columns, from_dy + first * columns, to + first * columns);
            });
  return dx;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
