#include "dtrain/core/optim/adam.h"

#include <array>
#include <cmath>

#include "dtrain/core/base/error.h"
#include "dtrain/core/optim/adam_kernel.h"
#include "dtrain/core/optim/betas.h"
#include "dtrain/core/optim/sweep.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/optim/adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/optim/gradient-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain {
namespace HWY_NAMESPACE {

void adam_kernel(const AdamStep& options, std::size_t n, float* weights, const float* gradients,
                 float* means, float* squares) {
  const AdamStep step = options;  // a copy, which no store below can alias
  const hn::ScalableTag<float> d;
  const auto set = [d](float value) { return hn::Set(d, value); };
  ops::HWY_NAMESPACE::for_each_vector(d, n, [&](std::size_t i, auto part) {
    auto w = part.load(d, weights + i);
    auto g = gradient(d, part.load(d, gradients + i), step.scalars);
    if (step.weight_decay != 0) g = hn::MulAdd(w, set(step.weight_decay), g);
    if (step.keep != 1) w = hn::Mul(w, set(step.keep));
    auto m = part.load(d, means + i);
    m = hn::MulAdd(set(step.one_minus_beta1), hn::Sub(g, m), m);
    auto v = hn::Mul(part.load(d, squares + i), set(step.beta2));
    v = hn::MulAdd(hn::Mul(set(step.one_minus_beta2), g), g, v);
    const auto root = hn::MulAdd(hn::Sqrt(v), set(step.root_correction), set(step.eps));
    w = hn::NegMulAdd(set(step.step_size), hn::Div(m, root), w);
    part.store(m, d, means + i);
    part.store(v, d, squares + i);
    part.store(w, d, weights + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain {

HWY_EXPORT(adam_kernel);

Adam::Adam(const AdamOptions& options) : options_(options) {
  check_beta(options.beta1);
  check_beta(options.beta2);
}

std::span<const std::string_view> Adam::state_names() const {
  static constexpr std::array<std::string_view, 2> names = {"exp_avg", "exp_avg_sq"};
  return names;
}

void Adam::step(std::span<float> weights, std::span<const float> gradients,
                std::span<const std::span<float>> state, std::span<const ParameterSegment> segments,
                const StepScalars& scalars, ThreadPool& pool) const {
  check_blocks(weights, gradients, state, state_names().size(), segments);
  if (!scalars.apply) return;
  const double lr = scalars.lr;
  const double correction1 = 1 - integer_power(options_.beta1, scalars.step + 1);
  const double correction2 = 1 - integer_power(options_.beta2, scalars.step + 1);
  const AdamStep step{.scalars = scalars,
                      .weight_decay = 0,
                      .keep = 1,
                      .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
                      .beta2 = static_cast<float>(options_.beta2),
                      .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
                      .eps = static_cast<float>(options_.eps),
                      .step_size = static_cast<float>(lr / correction1),
                      .root_correction = static_cast<float>(1 / std::sqrt(correction2))};
  sweep(segments, pool,
        [&](const ParameterSegment& segment, std::int64_t offset, std::int64_t size) {
          AdamStep own = step;
          if (options_.decoupled_decay) {
            own.keep = static_cast<float>(1 - lr * segment.weight_decay);
          } else {
            own.weight_decay = static_cast<float>(segment.weight_decay);
          }
          HWY_DYNAMIC_DISPATCH(adam_kernel)
          (own, static_cast<std::size_t>(size), weights.data() + offset, gradients.data() + offset,
           state[0].data() + offset, state[1].data() + offset);
        });
}

}  // namespace dtrain
#endif  // HWY_ONCE
