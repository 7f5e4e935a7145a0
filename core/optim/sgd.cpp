#include "dtrain/core/optim/sgd.h"

#include <array>

#include "dtrain/core/base/error.h"
#include "dtrain/core/optim/sgd_kernel.h"
#include "dtrain/core/optim/sweep.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/optim/sgd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/optim/gradient-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Vec<D> decayed(D d, hn::Vec<D> g, hn::Vec<D> w, float weight_decay) {
  return weight_decay == 0 ? g : hn::MulAdd(w, hn::Set(d, weight_decay), g);
}

void sgd_kernel(const SgdStep& options, std::size_t n, float* weights, const float* gradients) {
  const SgdStep step = options;  // a copy, which no store below can alias
  const hn::ScalableTag<float> d;
  const auto lr = hn::Set(d, step.scalars.lr);
  ops::HWY_NAMESPACE::for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto w = part.load(d, weights + i);
    const auto g =
        decayed(d, gradient(d, part.load(d, gradients + i), step.scalars), w, step.weight_decay);
    part.store(hn::NegMulAdd(lr, g, w), d, weights + i);
  });
}

void momentum_kernel(const SgdStep& options, std::size_t n, float* weights, const float* gradients,
                     float* buffers) {
  const SgdStep step = options;  // a copy, which no store below can alias
  const hn::ScalableTag<float> d;
  const auto lr = hn::Set(d, step.scalars.lr);
  const auto momentum = hn::Set(d, step.momentum);
  const auto share = hn::Set(d, step.gradient_share);
  const bool first = step.scalars.step == 0;
  ops::HWY_NAMESPACE::for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto w = part.load(d, weights + i);
    const auto g =
        decayed(d, gradient(d, part.load(d, gradients + i), step.scalars), w, step.weight_decay);
    auto b = g;
    if (!first) b = hn::MulAdd(share, g, hn::Mul(momentum, part.load(d, buffers + i)));
    part.store(b, d, buffers + i);
    const auto direction = step.nesterov ? hn::MulAdd(momentum, b, g) : b;
    part.store(hn::NegMulAdd(lr, direction, w), d, weights + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain {

HWY_EXPORT(sgd_kernel);
HWY_EXPORT(momentum_kernel);

Sgd::Sgd(const SgdOptions& options) : options_(options) {
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    throw ConfigError(fmt::format(
        "optimizer.nesterov: needs optimizer.momentum above 0 and optimizer.dampening 0, found {} "
        "and {}",
        options.momentum, options.dampening));
  }
}

std::span<const std::string_view> Sgd::state_names() const {
  static constexpr std::array<std::string_view, 1> names = {"momentum_buffer"};
  return std::span(names).first(options_.momentum == 0 ? 0 : 1);
}

void Sgd::step(std::span<float> weights, std::span<const float> gradients,
               std::span<const std::span<float>> state, std::span<const ParameterSegment> segments,
               const StepScalars& scalars, ThreadPool& pool) const {
  check_blocks(weights, gradients, state, state_names().size(), segments);
  if (!scalars.apply) return;
  sweep(segments, pool,
        [&](const ParameterSegment& segment, std::int64_t offset, std::int64_t size) {
          const SgdStep step{.scalars = scalars,
                             .weight_decay = static_cast<float>(segment.weight_decay),
                             .momentum = static_cast<float>(options_.momentum),
                             .gradient_share = static_cast<float>(1 - options_.dampening),
                             .nesterov = options_.nesterov};
          const std::size_t n = static_cast<std::size_t>(size);
          if (state.empty()) {
            HWY_DYNAMIC_DISPATCH(sgd_kernel)
            (step, n, weights.data() + offset, gradients.data() + offset);
          } else {
            HWY_DYNAMIC_DISPATCH(momentum_kernel)
            (step, n, weights.data() + offset, gradients.data() + offset, state[0].data() + offset);
          }
        });
}

}  // namespace dtrain
#endif  // HWY_ONCE
