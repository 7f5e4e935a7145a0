#include "dtrain/core/optim/lamb.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/reduce.h"
#include "dtrain/core/optim/betas.h"
#include "dtrain/core/optim/lamb_kernel.h"
#include "dtrain/core/optim/sweep.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/optim/lamb.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/optim/gradient-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain {
namespace HWY_NAMESPACE {

// The direction u of Lamb, the same bits in both sweeps.
template <class D>
HWY_INLINE hn::Vec<D> direction(D d, const LambStep& step, hn::Vec<D> w, hn::Vec<D> m,
                                hn::Vec<D> v) {
  const auto root = hn::MulAdd(hn::Sqrt(v), hn::Set(d, step.root_correction), hn::Set(d, step.eps));
  const auto u = hn::Div(hn::Mul(m, hn::Set(d, step.mean_correction)), root);
  return hn::MulAdd(w, hn::Set(d, step.weight_decay), u);
}

// First sweep: the moments, and u into `directions`.
void lamb_moments(const LambStep& options, std::size_t n, const float* weights,
                  const float* gradients, float* means, float* squares, float* directions) {
  const LambStep step = options;  // a copy, which no store below can alias
  const hn::ScalableTag<float> d;
  ops::HWY_NAMESPACE::for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto g = gradient(d, part.load(d, gradients + i), step.scalars);
    auto m = part.load(d, means + i);
    m = hn::MulAdd(hn::Set(d, step.one_minus_beta1), hn::Sub(g, m), m);
    auto v = hn::Mul(part.load(d, squares + i), hn::Set(d, step.beta2));
    v = hn::MulAdd(hn::Mul(hn::Set(d, step.one_minus_beta2), g), g, v);
    part.store(m, d, means + i);
    part.store(v, d, squares + i);
    part.store(direction(d, step, part.load(d, weights + i), m, v), d, directions + i);
  });
}

// Second sweep: the weights. u is computed again, which costs less than to keep it.
void lamb_weights(const LambStep& options, std::size_t n, float* weights, const float* means,
                  const float* squares) {
  const LambStep step = options;
  const hn::ScalableTag<float> d;
  ops::HWY_NAMESPACE::for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto w = part.load(d, weights + i);
    const auto u = direction(d, step, w, part.load(d, means + i), part.load(d, squares + i));
    part.store(hn::NegMulAdd(hn::Set(d, step.step_size), u, w), d, weights + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain {

HWY_EXPORT(lamb_moments);
HWY_EXPORT(lamb_weights);

namespace {

// Sums of squares of a block's, or a parameter's, weights and directions.
struct Squares {
  double weights = 0;
  double directions = 0;
};

std::int64_t blocks_of(const ParameterSegment& segment) {
  return (segment.size + ops::block_elements - 1) / ops::block_elements;
}

}  // namespace

Lamb::Lamb(const LambOptions& options) : options_(options) {
  check_beta(options.beta1);
  check_beta(options.beta2);
}

std::span<const std::string_view> Lamb::state_names() const {
  static constexpr std::array<std::string_view, 2> names = {"exp_avg", "exp_avg_sq"};
  return names;
}

void Lamb::step(std::span<float> weights, std::span<const float> gradients,
                std::span<const std::span<float>> state, std::span<const ParameterSegment> segments,
                const StepScalars& scalars, ThreadPool& pool) const {
  check_blocks(weights, gradients, state, state_names().size(), segments);
  if (!scalars.apply) return;
  const double correction1 = 1 - integer_power(options_.beta1, scalars.step + 1);
  const double correction2 = 1 - integer_power(options_.beta2, scalars.step + 1);
  const LambStep step{.scalars = scalars,
                      .weight_decay = 0,
                      .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
                      .beta2 = static_cast<float>(options_.beta2),
                      .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
                      .eps = static_cast<float>(options_.eps),
                      .mean_correction = static_cast<float>(1 / correction1),
                      .root_correction = static_cast<float>(1 / std::sqrt(correction2)),
                      .step_size = 0};
  std::vector<std::size_t> first_block(segments.size() + 1);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    first_block[i + 1] = first_block[i] + static_cast<std::size_t>(blocks_of(segments[i]));
  }
  std::vector<Squares> blocks(first_block.back());
  const auto index_of = [&](const ParameterSegment& segment) {
    return static_cast<std::size_t>(&segment - segments.data());
  };
  sweep(segments, pool,
        [&](const ParameterSegment& segment, std::int64_t offset, std::int64_t size) {
          LambStep own = step;
          own.weight_decay = static_cast<float>(segment.weight_decay);
          alignas(64) std::array<float, ops::block_elements> directions;
          auto block = first_block[index_of(segment)] +
                       static_cast<std::size_t>((offset - segment.offset) / ops::block_elements);
          for (std::int64_t at = offset; at < offset + size; at += ops::block_elements, ++block) {
            const auto n =
                static_cast<std::size_t>(std::min(ops::block_elements, offset + size - at));
            const auto begin = static_cast<std::size_t>(at);
            HWY_DYNAMIC_DISPATCH(lamb_moments)
            (own, n, weights.data() + at, gradients.data() + at, state[0].data() + at,
             state[1].data() + at, directions.data());
            blocks[block] = {ops::block_sum_of_squares(weights.subspan(begin, n)),
                             ops::block_sum_of_squares(std::span(directions).first(n))};
          }
        });
  std::vector<float> step_sizes(segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    Squares sum;
    for (std::size_t block = first_block[i]; block < first_block[i + 1]; ++block) {
      sum.weights += blocks[block].weights;
      sum.directions += blocks[block].directions;
    }
    const double ratio = sum.weights > 0 && sum.directions > 0
                             ? std::sqrt(sum.weights) / std::sqrt(sum.directions)
                             : 1;
    step_sizes[i] = static_cast<float>(double{scalars.lr} * ratio);
  }
  sweep(segments, pool,
        [&](const ParameterSegment& segment, std::int64_t offset, std::int64_t size) {
          LambStep own = step;
          own.weight_decay = static_cast<float>(segment.weight_decay);
          own.step_size = step_sizes[index_of(segment)];
          HWY_DYNAMIC_DISPATCH(lamb_weights)
          (own, static_cast<std::size_t>(size), weights.data() + offset, state[0].data() + offset,
           state[1].data() + offset);
        });
}

}  // namespace dtrain
#endif  // HWY_ONCE
