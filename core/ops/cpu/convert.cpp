#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/elementwise.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// With integer operations rather than the processor's conversions, so that NaN payloads and
// subnormals come out alike on all instruction sets, as in dtype.cpp.

using Words = hn::ScalableTag<std::uint32_t>;
using HalfWords = hn::Rebind<std::uint16_t, Words>;
using V = hn::Vec<Words>;

HWY_INLINE V word(std::uint32_t value) {
  return hn::Set(Words(), value);
}

HWY_INLINE V select(hn::Mask<Words> mask, V yes, V no) {
  return hn::IfThenElse(mask, yes, no);
}

// Of values below 2^31.
HWY_INLINE hn::Mask<Words> greater(V a, V b) {
  const hn::RebindToSigned<Words> d;
  return hn::MaskFromVec(
      hn::BitCast(Words(), hn::VecFromMask(d, hn::Gt(hn::BitCast(d, a), hn::BitCast(d, b)))));
}

// The sum of two floats, given by their bits.
HWY_INLINE V add_floats(V a, V b) {
  const hn::RebindToFloat<Words> d;
  return hn::BitCast(Words(), hn::Add(hn::BitCast(d, a), hn::BitCast(d, b)));
}

HWY_INLINE V bfloat16_bits(V bits) {
  const V magnitude = hn::And(bits, word(0x7FFFFFFF));
  const V high = hn::ShiftRight<16>(bits);
  const V odd = hn::And(high, word(1));
  const V rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(word(0x7FFF), odd)));
  return select(greater(magnitude, word(0x7F800000)), hn::Or(high, word(0x40)), rounded);
}

HWY_INLINE V float16_bits(V bits) {
  const V magnitude = hn::And(bits, word(0x7FFFFFFF));
  const V sign = hn::And(hn::ShiftRight<16>(bits), word(0x8000));
  const V shifted = hn::ShiftRight<13>(magnitude);
  const V odd = hn::And(shifted, word(1));
  const V normal =
      hn::Sub(hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(word(0xFFF), odd))), word(112 << 10));
  // Adding 0.5 aligns the last bit of a half subnormal with float's: the addition rounds.
  const V half = word(0x3F000000);
  const V subnormal = hn::Sub(add_floats(magnitude, half), half);
  const V nan = hn::Or(word(0x7E00), hn::And(shifted, word(0x3FF)));
  V result = select(greater(word(0x38800000), magnitude), subnormal, normal);
  result = select(greater(magnitude, word(0x477FEFFF)), word(0x7C00), result);  // infinity
  result = select(greater(magnitude, word(0x7F800000)), nan, result);
  return hn::Or(sign, result);
}

HWY_INLINE V bits_of_float16(V half) {
  const V sign = hn::ShiftLeft<16>(hn::And(half, word(0x8000)));
  const V magnitude = hn::And(half, word(0x7FFF));
  const V shifted = hn::ShiftLeft<13>(magnitude);
  const V normal = hn::Add(shifted, word(112u << 23));
  const V special = hn::Or(shifted, word(0x7F800000));  // infinity and NaN
  // 2^-14 (1 + fraction) - 2^-14 is the subnormal, and exact.
  const V subnormal = add_floats(hn::Add(shifted, word(113u << 23)), word(0x80000000 | 113u << 23));
  V result = select(greater(word(0x400), magnitude), subnormal, normal);
  result = select(greater(magnitude, word(0x7BFF)), special, result);
  return hn::Or(sign, result);
}

template <class F>
HWY_INLINE void narrow(std::size_t n, const float* x, std::uint16_t* y, const F& f) {
  const Words d;
  const hn::RebindToFloat<Words> d_float;
  const hn::RebindToSigned<Words> d_signed;
  const HalfWords d_half;
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const V bits = f(hn::BitCast(d, part.load(d_float, x + i)));
    part.store(hn::DemoteTo(d_half, hn::BitCast(d_signed, bits)), d_half, y + i);
  });
}

template <class F>
HWY_INLINE void widen(std::size_t n, const std::uint16_t* x, float* y, const F& f) {
  const Words d;
  const hn::RebindToFloat<Words> d_float;
  const HalfWords d_half;
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const V bits = f(hn::PromoteTo(d, part.load(d_half, x + i)));
    part.store(hn::BitCast(d_float, bits), d_float, y + i);
  });
}

void to_bfloat16_kernel(std::size_t n, const float* x, std::uint16_t* y) {
  narrow(n, x, y, [](V bits) { return bfloat16_bits(bits); });
}

void to_float16_kernel(std::size_t n, const float* x, std::uint16_t* y) {
  narrow(n, x, y, [](V bits) { return float16_bits(bits); });
}

void from_bfloat16_kernel(std::size_t n, const std::uint16_t* x, float* y) {
  widen(n, x, y, [](V half) { return hn::ShiftLeft<16>(half); });
}

void from_float16_kernel(std::size_t n, const std::uint16_t* x, float* y) {
  widen(n, x, y, [](V half) { return bits_of_float16(half); });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(to_bfloat16_kernel);
HWY_EXPORT(to_float16_kernel);
HWY_EXPORT(from_bfloat16_kernel);
HWY_EXPORT(from_float16_kernel);

Tensor convert(OpContext& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const auto is_half = [](DType type) { return type == DType::bf16 || type == DType::f16; };
  DTRAIN_CHECK(
      (x.dtype() == DType::f32 && is_half(dtype)) || (is_half(x.dtype()) && dtype == DType::f32),
      "no conversion from {} to {}", to_string(x.dtype()), to_string(dtype));
  const Tensor y = Tensor::empty(x.shape(), dtype, context.allocator(), "convert", x.layout());
  parallel_ranges(context, x.elements(), elements_per_thread,
                  [&](std::int64_t first, std::int64_t last) {
                    const std::size_t n = static_cast<std::size_t>(last - first);
                    if (x.dtype() == DType::f32) {
                      const float* from = x.data<float>() + first;
                      auto* to = static_cast<std::uint16_t*>(y.raw()) + first;
                      if (dtype == DType::bf16) {
                        HWY_DYNAMIC_DISPATCH(to_bfloat16_kernel)(n, from, to);
                      } else {
                        HWY_DYNAMIC_DISPATCH(to_float16_kernel)(n, from, to);
                      }
                    } else {
                      const auto* from = static_cast<const std::uint16_t*>(x.raw()) + first;
                      float* to = y.data<float>() + first;
                      if (x.dtype() == DType::bf16) {
                        HWY_DYNAMIC_DISPATCH(from_bfloat16_kernel)(n, from, to);
                      } else {
                        HWY_DYNAMIC_DISPATCH(from_float16_kernel)(n, from, to);
                      }
                    }
                  });
  return y;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
