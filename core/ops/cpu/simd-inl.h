// Loops over arrays for the instruction set that is being compiled. Highway includes this once per
// target; operators write what happens to a vector, the loops here say to which.
//
// Note [Tails]: the last elements of an array, fewer than a vector, go through the same vector
// function as all others, on a partly filled vector. So an element's result depends neither on
// where in the array it stands nor on how long the array is.

// clang-format off
#if defined(DTRAIN_CORE_OPS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DTRAIN_CORE_OPS_CPU_SIMD_INL_H_
#undef DTRAIN_CORE_OPS_CPU_SIMD_INL_H_
#else
#define DTRAIN_CORE_OPS_CPU_SIMD_INL_H_
#endif
// clang-format on

#include <cstddef>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first n elements at p, n < Lanes(d), and zeros. Touches no memory behind them.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* p, std::size_t n) {
  if (!HWY_MEM_OPS_MIGHT_FAULT) return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(D())] = {};
  std::memcpy(buffer, p, n * sizeof(*p));
  return hn::Load(d, buffer);
}

template <class D>
HWY_INLINE void store_part(hn::Vec<D> v, D d, hn::TFromD<D>* p, std::size_t n) {
  if (!HWY_MEM_OPS_MIGHT_FAULT) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
    return;
  }
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(D())];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, n * sizeof(*p));
}

// Loads and stores a full vector ...
struct WholeVector {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) const {
    return hn::LoadU(d, p);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* p) const {
    hn::StoreU(v, d, p);
  }
  // v, with `other` in the lanes that hold no element.
  template <class D>
  HWY_INLINE hn::Vec<D> or_else(D, hn::Vec<D> v, hn::Vec<D>) const {
    return v;
  }
  template <class D>
  HWY_INLINE hn::Mask<D> lanes(D d) const {
    return hn::FirstN(d, hn::Lanes(d));
  }
};

// ... and the first n lanes of one, n >= 1; the others load as zero.
struct PartOfVector {
  std::size_t n;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) const {
    return load_part(d, p, n);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* p) const {
    store_part(v, d, p, n);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> or_else(D d, hn::Vec<D> v, hn::Vec<D> other) const {
    return hn::IfThenElse(hn::FirstN(d, n), v, other);
  }
  template <class D>
  HWY_INLINE hn::Mask<D> lanes(D d) const {
    return hn::FirstN(d, n);
  }
};

// Calls step(i, part) for each vector of `size` elements in steps of Lanes(d): i is its first
// element, `part` loads and stores it (WholeVector or PartOfVector).
template <class D, class Step>
HWY_INLINE void for_each_vector(D d, std::size_t size, const Step& step) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) step(i, WholeVector());
  if (i < size) step(i, PartOfVector{size - i});
}

// y = f(x); y may be x.
template <class F>
HWY_INLINE void map(std::size_t size, const float* x, float* y, const F& f) {
  const hn::ScalableTag<float> d;
  for_each_vector(
      d, size, [&](std::size_t i, auto part) { part.store(f(d, part.load(d, x + i)), d, y + i); });
}

// y = f(a, b); y may be a or b.
template <class F>
HWY_INLINE void map(std::size_t size, const float* a, const float* b, float* y, const F& f) {
  const hn::ScalableTag<float> d;
  for_each_vector(d, size, [&](std::size_t i, auto part) {
    part.store(f(d, part.load(d, a + i), part.load(d, b + i)), d, y + i);
  });
}

// The sum of a vector's lanes.
template <class D>
HWY_INLINE hn::TFromD<D> sum_of_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// Floats as doubles: the tag of the floats that fill one vector of doubles.
using DoubleTag = hn::ScalableTag<double>;
using FloatsOfDouble = hn::Rebind<float, DoubleTag>;

}  // namespace dtrain::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DTRAIN_CORE_OPS_CPU_SIMD_INL_H_
