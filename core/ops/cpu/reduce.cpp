#include "dtrain/core/ops/reduce.h"

#include "dtrain/core/base/error.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// Squares of floats are exact in double, so fused and separate rounding give the same bits.
double sum_of_squares_kernel(std::size_t n, const float* x) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  const std::size_t lanes = hn::Lanes(d);
  const auto add_square = [=](auto sum, std::size_t i) {
    const auto v = hn::PromoteTo(wide, hn::LoadU(d, x + i));
    return hn::MulAdd(v, v, sum);
  };
  // Four chains of additions, so that one does not wait for the other.
  auto sum0 = hn::Zero(wide), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = add_square(sum0, i);
    sum1 = add_square(sum1, i + lanes);
    sum2 = add_square(sum2, i + 2 * lanes);
    sum3 = add_square(sum3, i + 3 * lanes);
  }
  for_each_vector(d, n - i, [&](std::size_t j, auto part) {
    const auto v = hn::PromoteTo(wide, part.load(d, x + i + j));
    sum0 = hn::MulAdd(v, v, sum0);
  });
  return sum_of_lanes(wide, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(sum_of_squares_kernel);

double block_sum_of_squares(std::span<const float> block) {
  DTRAIN_CHECK(static_cast<std::int64_t>(block.size()) <= block_elements, "a block of {} elements",
               block.size());
  return HWY_DYNAMIC_DISPATCH(sum_of_squares_kernel)(block.size(), block.data());
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
