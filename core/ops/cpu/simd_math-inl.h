// Vector mathematics: exp, log1p, tanh, erf and the sigmoid, within a few units in the last place.
// Unlike Highway's own, all pass NaN on, and exp takes any argument.

// clang-format off
#if defined(DTRAIN_CORE_OPS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DTRAIN_CORE_OPS_CPU_SIMD_MATH_INL_H_
#undef DTRAIN_CORE_OPS_CPU_SIMD_MATH_INL_H_
#else
#define DTRAIN_CORE_OPS_CPU_SIMD_MATH_INL_H_
#endif
// clang-format on

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `result`, or x where x is NaN.
template <class D>
HWY_INLINE hn::Vec<D> keep_nan(D, hn::Vec<D> x, hn::Vec<D> result) {
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// Float or double.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  // Beyond this Highway's exponent arithmetic would wrap; the result is infinite already.
  const auto limit = hn::Set(d, sizeof(hn::TFromD<D>) == 4 ? 104 : 720);
  return keep_nan(d, x, hn::Exp(d, hn::Min(x, limit)));
}

// Of x in [0, 1].
template <class D>
HWY_INLINE hn::Vec<D> log1p(D d, hn::Vec<D> x) {
  return keep_nan(d, x, hn::Log1p(d, x));
}

template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  return keep_nan(d, x, hn::Tanh(d, x));
}

// 1 / (1 + exp(-x)), without overflow for any x: exp is taken of -|x| alone.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1);
  const auto e = exp(d, hn::Neg(hn::Abs(x)));
  const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

// Float only. Below 1 an odd polynomial of x; from 1 on 1 - exp(-p(|x|)), where p fits
// -log(erfc), so the error of exp counts only a sixth. Both fits are minimax to 2e-9.
template <class D>
HWY_INLINE hn::Vec<D> erf(D d, hn::Vec<D> x) {
  const auto c = [d](float value) { return hn::Set(d, value); };
  const auto a = hn::Min(hn::Abs(x), c(4.0f));  // erfc(4) is less than half a unit of 1

  const auto t = hn::Mul(a, a);
  auto small = c(7.8538615e-05f);
  for (const float k :
       {-0.00080101937f, 0.0051883277f, -0.026853813f, 0.112835854f, -0.37612626f, 1.1283791f}) {
    small = hn::MulAdd(small, t, c(k));
  }
  small = hn::Mul(small, a);

  auto p = c(-0.00018557398f);
  for (const float k :
       {0.002939607f, -0.021805318f, 0.103037365f, 0.6382257f, 1.12704f, 0.00035371975f}) {
    p = hn::MulAdd(p, a, c(k));
  }
  const auto large = hn::Sub(c(1.0f), hn::Exp(d, hn::Neg(p)));

  const auto magnitude = hn::IfThenElse(hn::Lt(a, c(1.0f)), small, large);
  return keep_nan(d, x, hn::CopySign(magnitude, x));
}

}  // namespace dtrain::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DTRAIN_CORE_OPS_CPU_SIMD_MATH_INL_H_
