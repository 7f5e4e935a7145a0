#include "dtrain/core/ops/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dtrain/core/ops/cpu/loss_kernels.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/reduce.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
#include "dtrain/core/ops/cpu/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// Losses are computed in double: micro-batches are small beside the layers below, and a sum over
// many thousand targets then keeps all digits of a float.

// A row's log probabilities are x - max - log_sum.
struct LogSoftmax {
  double max;
  double log_sum;
};

HWY_INLINE LogSoftmax log_softmax(std::size_t n, const float* x) {
  const hn::ScalableTag<float> d_max;
  const auto lowest = hn::Set(d_max, -std::numeric_limits<float>::infinity());
  auto max_lanes = lowest;
  for_each_vector(d_max, n, [&](std::size_t i, auto part) {
    max_lanes = hn::Max(max_lanes, part.or_else(d_max, part.load(d_max, x + i), lowest));
  });
  const double max = hn::GetLane(hn::MaxOfLanes(d_max, max_lanes));

  const FloatsOfDouble d;
  const DoubleTag wide;
  auto sum_lanes = hn::Zero(wide);
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto v = hn::PromoteTo(wide, part.load(d, x + i));
    const auto e = exp(wide, hn::Sub(v, hn::Set(wide, max)));
    sum_lanes = hn::Add(sum_lanes, part.or_else(wide, e, hn::Zero(wide)));
  });
  // NaN, or +infinity, or all -infinity: the sum is NaN.
  const double sum = sum_of_lanes(wide, sum_lanes);
  const auto log_sum = keep_nan(wide, hn::Set(wide, sum), hn::Log(wide, hn::Set(wide, sum)));
  return {max, hn::GetLane(log_sum)};
}

HWY_INLINE double class_weight(const CrossEntropyTerms& terms, std::int64_t target) {
  return terms.weights == nullptr ? 1.0 : terms.weights[target];
}

double cross_entropy_kernel(const CrossEntropyTerms& terms, const float* x, std::int64_t target) {
  const LogSoftmax row = log_softmax(terms.classes, x);
  const double loss = terms.nll * class_weight(terms, target) * (row.max - x[target] + row.log_sum);
  if (terms.smooth == 0) return loss;

  const FloatsOfDouble d;
  const DoubleTag wide;
  auto lanes = hn::Zero(wide);
  for_each_vector(d, terms.classes, [&](std::size_t i, auto part) {
    const auto v = hn::PromoteTo(wide, part.load(d, x + i));
    const auto q = hn::Add(hn::Sub(hn::Set(wide, row.max), v), hn::Set(wide, row.log_sum));
    const auto w = terms.weights == nullptr ? hn::Set(wide, 1.0)
                                            : hn::PromoteTo(wide, part.load(d, terms.weights + i));
    lanes = hn::Add(lanes, part.or_else(wide, hn::Mul(w, q), hn::Zero(wide)));
  });
  return loss + terms.smooth * sum_of_lanes(wide, lanes);
}

// dx[c] = seed * ((a + smooth * W) p[c] - smooth * w[c] - a [c == target]), a = nll * w[target].
void cross_entropy_backward_kernel(const CrossEntropyTerms& terms, const float* x,
                                   std::int64_t target, double seed, float* dx) {
  const LogSoftmax row = log_softmax(terms.classes, x);
  const FloatsOfDouble d;
  const DoubleTag wide;
  const double a = terms.nll * class_weight(terms, target);
  const auto of_probability = hn::Set(wide, a + terms.smooth * terms.weight_sum);
  const auto smooth = hn::Set(wide, terms.smooth);
  for_each_vector(d, terms.classes, [&](std::size_t i, auto part) {
    const auto v = hn::PromoteTo(wide, part.load(d, x + i));
    const auto p =
        exp(wide, hn::Sub(hn::Sub(v, hn::Set(wide, row.max)), hn::Set(wide, row.log_sum)));
    const auto w = terms.weights == nullptr ? hn::Set(wide, 1.0)
                                            : hn::PromoteTo(wide, part.load(d, terms.weights + i));
    const auto index = hn::Iota(wide, static_cast<double>(i));
    const auto is_target = hn::Eq(index, hn::Set(wide, static_cast<double>(target)));
    const auto own = hn::IfThenElseZero(is_target, hn::Set(wide, a));
    const auto g = hn::Sub(hn::Sub(hn::Mul(of_probability, p), hn::Mul(smooth, w)), own);
    part.store(hn::DemoteTo(d, hn::Mul(g, hn::Set(wide, seed))), d, dx + i);
  });
}

// Sum over n elements of f(x, t), in double.
template <class F>
HWY_INLINE double sum_of_terms(std::size_t n, const float* x, const float* t, const F& f) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  auto lanes = hn::Zero(wide);
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto term =
        f(wide, hn::PromoteTo(wide, part.load(d, x + i)), hn::PromoteTo(wide, part.load(d, t + i)));
    lanes = hn::Add(lanes, part.or_else(wide, term, hn::Zero(wide)));
  });
  return sum_of_lanes(wide, lanes);
}

double mse_kernel(std::size_t n, const float* x, const float* t) {
  return sum_of_terms(n, x, t, [](auto, auto v, auto target) {
    const auto difference = hn::Sub(v, target);
    return hn::Mul(difference, difference);
  });
}

void mse_backward_kernel(std::size_t n, const float* x, const float* t, float seed, float* dx) {
  map(n, x, t, dx, [seed](auto d, auto v, auto target) {
    return hn::Mul(hn::Set(d, 2.0f * seed), hn::Sub(v, target));
  });
}

// (1 - t) x - log sigmoid(x), where log sigmoid(x) = min(x, 0) - log(1 + exp(-|x|)).
double bce_kernel(std::size_t n, const float* x, const float* t) {
  return sum_of_terms(n, x, t, [](auto d, auto v, auto target) {
    const auto tail = log1p(d, exp(d, hn::Neg(hn::Abs(v))));
    const auto log_sigmoid = hn::Sub(hn::Min(v, hn::Zero(d)), tail);
    return hn::Sub(hn::Mul(hn::Sub(hn::Set(d, 1.0), target), v), log_sigmoid);
  });
}

void bce_backward_kernel(std::size_t n, const float* x, const float* t, double seed, float* dx) {
  const FloatsOfDouble d;
  const DoubleTag wide;
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto p = sigmoid(wide, hn::PromoteTo(wide, part.load(d, x + i)));
    const auto g = hn::Sub(p, hn::PromoteTo(wide, part.load(d, t + i)));
    part.store(hn::DemoteTo(d, hn::Mul(g, hn::Set(wide, seed))), d, dx + i);
  });
}

// How many of n values do not score below `score`: they are greater, NaN, or (with `equal`) equal.
HWY_INLINE std::int64_t count_ahead(std::size_t n, const float* x, float score, bool equal) {
  const hn::ScalableTag<float> d;
  const auto limit = hn::Set(d, score);
  std::size_t count = 0;
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto v = part.load(d, x + i);
    const auto behind = equal ? hn::Lt(v, limit) : hn::Le(v, limit);
    count += hn::CountTrue(d, hn::And(part.lanes(d), hn::Not(behind)));
  });
  return static_cast<std::int64_t>(count);
}

std::int64_t rank_kernel(std::size_t n, const float* x, std::int64_t target) {
  const std::size_t t = static_cast<std::size_t>(target);
  return count_ahead(t, x, x[t], true) + count_ahead(n - t - 1, x + t + 1, x[t], false);
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(cross_entropy_kernel);
HWY_EXPORT(cross_entropy_backward_kernel);
HWY_EXPORT(mse_kernel);
HWY_EXPORT(mse_backward_kernel);
HWY_EXPORT(bce_kernel);
HWY_EXPORT(bce_backward_kernel);
HWY_EXPORT(rank_kernel);

namespace {

// [..., C] logits and [...] targets; returns C.
std::int64_t check_classes(const Tensor& logits, const Tensor& targets, std::string_view who) {
  check_plain(logits, who);
  const Shape &of_logits = logits.shape(), &of_targets = targets.shape();
  DTRAIN_CHECK(of_logits.rank() >= 2 && of_targets.rank() + 1 == of_logits.rank() &&
                   std::ranges::equal(of_targets.sizes(),
                                      of_logits.sizes().first(of_targets.sizes().size())) &&
                   of_logits[-1] >= 1,
               "{}: logits {} and targets {}", who, to_string(of_logits), to_string(of_targets));
  return of_logits[-1];
}

void check_target(std::int64_t target, std::int64_t classes, std::size_t row) {
  DTRAIN_CHECK(target >= 0 && target < classes, "target {} of row {} is not one of {} classes",
               target, row, classes);
}

CrossEntropyTerms make_terms(const CrossEntropyOptions& options, std::int64_t classes) {
  DTRAIN_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
               "label smoothing of {}", options.label_smoothing);
  CrossEntropyTerms terms;
  terms.classes = static_cast<std::size_t>(classes);
  terms.nll = 1.0 - static_cast<double>(options.label_smoothing);
  terms.smooth = static_cast<double>(options.label_smoothing) / static_cast<double>(classes);
  terms.weight_sum = static_cast<double>(classes);
  if (options.class_weights.elements() > 0) {
    const std::span<const float> weights = options.class_weights.values<float>();
    DTRAIN_CHECK(static_cast<std::int64_t>(weights.size()) == classes,
                 "{} class weights for {} classes", weights.size(), classes);
    terms.weights = weights.data();
    terms.weight_sum = 0;
    for (const float weight : weights) terms.weight_sum += weight;
  }
  return terms;
}

std::int64_t rows_per_thread(std::int64_t classes) {
  // An exponential in double costs as much as some ten simple operations.
  return std::max<std::int64_t>(1, elements_per_thread / 10 / classes);
}

// Per block of 4,096 elements, added in order: see Note [Block sums].
LossSums block_sums(OpContext& context, const Tensor& x, const Tensor& targets,
                    std::string_view who,
                    double (*kernel)(std::size_t, const float*, const float*)) {
  check_alike(x, targets, who);
  const std::int64_t elements = x.elements();
  const float* from_x = x.data<float>();
  const float* from_t = targets.data<float>();
  const std::int64_t blocks = (elements + block_elements - 1) / block_elements;
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  parallel_ranges(context, blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t start = block * block_elements;
      const std::int64_t size = std::min(block_elements, elements - start);
      sums[static_cast<std::size_t>(block)] =
          kernel(static_cast<std::size_t>(size), from_x + start, from_t + start);
    }
  });
  LossSums result;
  for (const double sum : sums) result.loss += sum;
  result.weight = static_cast<double>(elements);
  return result;
}

}  // namespace

LossSums cross_entropy(OpContext& context, const Tensor& logits, const Tensor& targets,
                       const CrossEntropyOptions& options) {
  const std::int64_t classes = check_classes(logits, targets, "cross_entropy");
  const CrossEntropyTerms terms = make_terms(options, classes);
  const float* x = logits.data<float>();
  const std::span<const std::int64_t> labels = targets.values<std::int64_t>();
  std::vector<double> losses(labels.size());
  parallel_ranges(context, targets.elements(), rows_per_thread(classes),
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t n = first; n < last; ++n) {
                      const std::size_t row = static_cast<std::size_t>(n);
                      if (labels[row] == options.ignore_index) continue;
                      check_target(labels[row], classes, row);
                      losses[row] = HWY_DYNAMIC_DISPATCH(cross_entropy_kernel)(
                          terms, x + n * classes, labels[row]);
                    }
                  });
  LossSums sums;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == options.ignore_index) continue;
    sums.loss += losses[row];
    sums.weight += terms.weights == nullptr ? 1.0 : terms.weights[labels[row]];
  }
  return sums;
}

Tensor cross_entropy_backward(OpContext& context, Tensor logits, const Tensor& targets,
                              const CrossEntropyOptions& options, float seed) {
  const std::int64_t classes = check_classes(logits, targets, "cross_entropy_backward");
  const CrossEntropyTerms terms = make_terms(options, classes);
  const Tensor dlogits =
      logits.shared() ? empty_like(context, logits, "cross_entropy_backward") : logits;
  const float* x = logits.data<float>();
  float* dx = dlogits.data<float>();
  const std::span<const std::int64_t> labels = targets.values<std::int64_t>();
  parallel_ranges(context, targets.elements(), rows_per_thread(classes),
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t n = first; n < last; ++n) {
                      const std::size_t row = static_cast<std::size_t>(n);
                      float* to = dx + n * classes;
                      if (labels[row] == options.ignore_index) {
                        std::fill_n(to, classes, 0.0f);
                        continue;
                      }
                      check_target(labels[row], classes, row);
                      HWY_DYNAMIC_DISPATCH(cross_entropy_backward_kernel)
                      (terms, x + n * classes, labels[row], static_cast<double>(seed), to);
                    }
                  });
  return dlogits;
}

LossSums mse(OpContext& context, const Tensor& x, const Tensor& targets) {
  return block_sums(context, x, targets, "mse", HWY_DYNAMIC_DISPATCH(mse_kernel));
}

Tensor mse_backward(OpContext& context, const Tensor& x, const Tensor& targets, float seed) {
  check_alike(x, targets, "mse_backward");
  const Tensor dx = empty_like(context, x, "mse_backward");
  HWY_DYNAMIC_DISPATCH(mse_backward_kernel)
  (static_cast<std::size_t>(x.elements()), x.data<float>(), targets.data<float>(), seed,
   dx.data<float>());
  return dx;
}

LossSums bce_with_logits(OpContext& context, const Tensor& x, const Tensor& targets) {
  return block_sums(context, x, targets, "bce_with_logits", HWY_DYNAMIC_DISPATCH(bce_kernel));
}

Tensor bce_with_logits_backward(OpContext& context, const Tensor& x, const Tensor& targets,
                                float seed) {
  check_alike(x, targets, "bce_with_logits_backward");
  const Tensor dx = empty_like(context, x, "bce_with_logits_backward");
  HWY_DYNAMIC_DISPATCH(bce_backward_kernel)
  (static_cast<std::size_t>(x.elements()), x.data<float>(), targets.data<float>(),
   static_cast<double>(seed), dx.data<float>());
  return dx;
}

TopK count_top_k(OpContext& context, const Tensor& logits, const Tensor& targets,
                 std::int64_t ignore_index) {
  const std::int64_t classes = check_classes(logits, targets, "count_top_k");
  const std::span<const float> x = logits.values<float>();
  const std::span<const std::int64_t> labels = targets.values<std::int64_t>();
  // Classes ahead of each row's target; a target whose score is NaN is never right.
  std::vector<std::int64_t> ahead(labels.size(), classes + 5);
  parallel_ranges(context, targets.elements(),
                  std::max<std::int64_t>(1, elements_per_thread / classes),
                  [&](std::int64_t first, std::int64_t last) {
                    for (auto row = static_cast<std::size_t>(first);
                         row < static_cast<std::size_t>(last); ++row) {
                      if (labels[row] == ignore_index) continue;
                      check_target(labels[row], classes, row);
                      const float* scores = x.data() + row * static_cast<std::size_t>(classes);
                      if (std::isnan(scores[labels[row]])) continue;
                      ahead[row] = HWY_DYNAMIC_DISPATCH(rank_kernel)(
                          static_cast<std::size_t>(classes), scores, labels[row]);
                    }
                  });
  TopK counts;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == ignore_index) continue;
    ++counts.targets;
    counts.top1 += ahead[row] < 1;
    counts.top5 += ahead[row] < 5;
  }
  return counts;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
