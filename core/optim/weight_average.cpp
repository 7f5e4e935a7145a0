#include "dtrain/core/optim/weight_average.h"

#include <algorithm>
#include <cstdint>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/reduce.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/optim/weight_average.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void average_kernel(float share, std::size_t n, float* average, const float* values) {
  const hn::ScalableTag<float> d;
  ops::HWY_NAMESPACE::for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto a = part.load(d, average + i);
    const auto difference = hn::Sub(part.load(d, values + i), a);
    part.store(hn::MulAdd(hn::Set(d, share), difference, a), d, average + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain {

HWY_EXPORT(average_kernel);

void update_average(std::span<float> average, std::span<const float> values, double decay,
                    ThreadPool& pool) {
  DTRAIN_CHECK(average.size() == values.size(), "{} averages of {} values", average.size(),
               values.size());
  const auto size = static_cast<std::int64_t>(average.size());
  const auto share = static_cast<float>(1 - decay);
  pool.parallel_for((size + ops::block_elements - 1) / ops::block_elements, [&](std::int64_t first,
                                                                                std::int64_t last) {
    const std::int64_t begin = first * ops::block_elements;
    const std::int64_t end = std::min(last * ops::block_elements, size);
    HWY_DYNAMIC_DISPATCH(average_kernel)
    (share, static_cast<std::size_t>(end - begin), average.data() + begin, values.data() + begin);
  });
}

}  // namespace dtrain
#endif  // HWY_ONCE
