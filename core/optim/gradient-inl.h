// How an optimizer kernel reads a gradient. Included once per instruction set.

// clang-format off
#if defined(DTRAIN_CORE_OPTIM_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DTRAIN_CORE_OPTIM_GRADIENT_INL_H_
#undef DTRAIN_CORE_OPTIM_GRADIENT_INL_H_
#else
#define DTRAIN_CORE_OPTIM_GRADIENT_INL_H_
#endif
// clang-format on

#include "dtrain/core/ops/cpu/simd-inl.h"
#include "dtrain/core/optim/step_scalars.h"

HWY_BEFORE_NAMESPACE();
namespace dtrain::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (sum / gradient_divisor) * clip_coefficient; by 1 either changes nothing and is left out.
template <class D>
HWY_INLINE hn::Vec<D> gradient(D d, hn::Vec<D> sum, const StepScalars& scalars) {
  if (scalars.gradient_divisor != 1) sum = hn::Div(sum, hn::Set(d, scalars.gradient_divisor));
  if (scalars.clip_coefficient != 1) sum = hn::Mul(sum, hn::Set(d, scalars.clip_coefficient));
  return sum;
}

}  // namespace dtrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DTRAIN_CORE_OPTIM_GRADIENT_INL_H_
