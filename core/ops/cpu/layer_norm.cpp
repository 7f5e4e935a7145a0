#include "dtrain/core/ops/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/cpu/row_norm.h"
#include "dtrain/core/ops/cpu/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// The sum of f(i, part) over a row, in four sums so that additions need not wait for each other.
template <class F>
HWY_INLINE float sum_over_row(std::size_t n, const F& f) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, f(i, WholeVector()));
    s1 = hn::Add(s1, f(i + lanes, WholeVector()));
    s2 = hn::Add(s2, f(i + 2 * lanes, WholeVector()));
    s3 = hn::Add(s3, f(i + 3 * lanes, WholeVector()));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, f(i, WholeVector()));
  if (i < n) {
    const PartOfVector part{n - i};
    s1 = hn::Add(s1, part.or_else(d, f(i, part), hn::Zero(d)));
  }
  return sum_of_lanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// y = (x - mean) * scale * gamma + beta.
void row_norm_apply(const RowNorm& norm, const float* x, float mean, float scale, float* y) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, mean);
  const auto s = hn::Set(d, scale);
  for_each_vector(d, norm.columns, [&](std::size_t i, auto part) {
    const auto normalized = hn::Mul(hn::Sub(part.load(d, x + i), m), s);
    const auto g = part.load(d, norm.gamma + i);
    const auto b = norm.beta == nullptr ? hn::Zero(d) : part.load(d, norm.beta + i);
    part.store(hn::MulAdd(normalized, g, b), d, y + i);
  });
}

void row_norm_kernel(const RowNorm& norm, const float* x, float* y, float* mean, float* scale) {
  const hn::ScalableTag<float> d;
  const std::size_t n = norm.columns;
  const float count = static_cast<float>(n);
  float m = 0, squares = 0;
  if (norm.centered) {
    m = sum_over_row(n, [&](std::size_t i, auto part) { return part.load(d, x + i); }) / count;
    // What rounding left of the mean, so that rows of large mean and small variance come out right.
    const auto deviation = [&](std::size_t i, auto part) {
      return hn::Sub(part.load(d, x + i), hn::Set(d, m));
    };
    m += sum_over_row(n, deviation) / count;
    squares = sum_over_row(n, [&](std::size_t i, auto part) {
      const auto v = deviation(i, part);
      return hn::Mul(v, v);
    });
    *mean = m;
  } else {
    squares = sum_over_row(n, [&](std::size_t i, auto part) {
      const auto v = part.load(d, x + i);
      return hn::Mul(v, v);
    });
  }
  *scale = 1 / std::sqrt(squares / count + norm.epsilon);
  row_norm_apply(norm, x, m, *scale, y);
}

// dx = scale * (g - mean(g) - n * mean(g n)), with g = dy * gamma and n the normalized row; RMS
// norm leaves mean(g) out.
void row_norm_backward_kernel(const RowNorm& norm, const RowNormBackward& chunk) {
  const hn::ScalableTag<float> d;
  const std::size_t n = norm.columns;
  const float inverse = 1 / static_cast<float>(n);
  std::fill_n(chunk.dgamma, n, 0.0f);
  if (chunk.dbeta != nullptr) std::fill_n(chunk.dbeta, n, 0.0f);
  for (std::size_t row = 0; row < chunk.rows; ++row) {
    const float* x = chunk.x + row * n;
    const float* dy = chunk.dy + row * n;
    const auto mean = hn::Set(d, norm.centered ? chunk.mean[row] : 0.0f);
    const auto scale = hn::Set(d, chunk.scale[row]);
    auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
    for_each_vector(d, n, [&](std::size_t i, auto part) {
      const auto v = part.load(d, dy + i);
      const auto normalized = hn::Mul(hn::Sub(part.load(d, x + i), mean), scale);
      const auto g = hn::Mul(v, part.load(d, norm.gamma + i));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::Add(sum_gn, hn::Mul(g, normalized));
      const auto dgamma = part.load(d, chunk.dgamma + i);
      part.store(hn::MulAdd(v, normalized, dgamma), d, chunk.dgamma + i);
      if (chunk.dbeta != nullptr) {
        part.store(hn::Add(part.load(d, chunk.dbeta + i), v), d, chunk.dbeta + i);
      }
    });
    const auto mean_g = hn::Set(d, norm.centered ? sum_of_lanes(d, sum_g) * inverse : 0.0f);
    const auto mean_gn = hn::Set(d, sum_of_lanes(d, sum_gn) * inverse);
    const float* base = chunk.base == nullptr ? nullptr : chunk.base + row * n;
    float* dx = chunk.dx + row * n;
    for_each_vector(d, n, [&](std::size_t i, auto part) {
      const auto normalized = hn::Mul(hn::Sub(part.load(d, x + i), mean), scale);
      const auto g = hn::Mul(part.load(d, dy + i), part.load(d, norm.gamma + i));
      const auto inner = hn::NegMulAdd(normalized, mean_gn, hn::Sub(g, mean_g));
      const auto other = base == nullptr ? hn::Zero(d) : part.load(d, base + i);
      part.store(hn::MulAdd(inner, scale, other), d, dx + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(row_norm_apply);
HWY_EXPORT(row_norm_kernel);
HWY_EXPORT(row_norm_backward_kernel);

namespace {

// Rows of a chunk of the backward: sums over them are floats, over chunks doubles in order.
constexpr std::int64_t chunk_rows = 64;

RowNorm make_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, bool centered,
                  float epsilon, std::string_view who) {
  check_plain(x, who);
  DTRAIN_CHECK(x.shape().rank() >= 1 && x.shape()[-1] >= 1 && gamma.shape() == Shape{x.shape()[-1]},
               "{}: weights {} for rows of {}", who, to_string(gamma.shape()),
               to_string(x.shape()));
  DTRAIN_CHECK(!beta.defined() || beta.shape() == gamma.shape(), "{}: biases {} and weights {}",
               who, to_string(beta.shape()), to_string(gamma.shape()));
  return {.columns = static_cast<std::size_t>(x.shape()[-1]),
          .gamma = gamma.data<float>(),
          .beta = beta.defined() ? beta.data<float>() : nullptr,
          .centered = centered,
          .epsilon = epsilon};
}

std::int64_t rows_of(const Tensor& x) {
  return x.elements() / x.shape()[-1];
}

std::int64_t row_grain(const Tensor& x) {
  return std::max<std::int64_t>(1, elements_per_thread / x.shape()[-1]);
}

RowNormOutput row_norm(OpContext& context, const Tensor& x, const RowNorm& norm,
                       std::string_view who) {
  const std::int64_t rows = rows_of(x);
  RowNormOutput out{.y = empty_like(context, x, who), .statistics = {}};
  out.statistics.scale = Tensor::empty({rows}, DType::f32, context.allocator(), who);
  if (norm.centered) {
    out.statistics.mean = Tensor::empty({rows}, DType::f32, context.allocator(), who);
  }
  if (rows == 0) return out;
  const std::int64_t columns = x.shape()[-1];
  const float* from = x.data<float>();
  float* to = out.y.data<float>();
  float* mean = norm.centered ? out.statistics.mean.data<float>() : nullptr;
  float* scale = out.statistics.scale.data<float>();
  parallel_ranges(context, rows, row_grain(x), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      HWY_DYNAMIC_DISPATCH(row_norm_kernel)
      (norm, from + r * columns, to + r * columns, mean == nullptr ? nullptr : mean + r, scale + r);
    }
  });
  return out;
}

// The sums of the chunks' partial sums, [chunks][columns], in order.
void merge_chunks(OpContext& context, std::int64_t chunks, std::int64_t columns,
                  const float* partials, bool adds, const Tensor& sums) {
  float* to = sums.data<float>();
  const Scratch<double> totals(context, columns);
  parallel_ranges(context, columns, std::max<std::int64_t>(16, elements_per_thread / chunks),
                  [&](std::int64_t first, std::int64_t last) {
                    double* const total = totals.data();
                    std::fill(total + first, total + last, 0.0);
                    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
                      const float* from = partials + chunk * columns;
                      for (std::int64_t c = first; c < last; ++c) total[c] += from[c];
                    }
                    for (std::int64_t c = first; c < last; ++c) {
                      const float sum = static_cast<float>(total[c]);
                      to[c] = adds ? to[c] + sum : sum;
                    }
                  });
}

Tensor row_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy, const RowNorm& norm,
                         const RowStatistics& statistics, const RowNormGradients& gradients,
                         Tensor base, std::string_view who) {
  check_alike(x, dy, who);
  DTRAIN_CHECK(gradients.gamma.shape() == Shape{x.shape()[-1]}, "{}: weight gradient {}", who,
               to_string(gradients.gamma.shape()));
  const bool has_base = base.defined();
  if (has_base) check_alike(x, base, who);
  const Tensor dx = has_base ? std::move(base) : empty_like(context, x, who);
  const std::int64_t rows = rows_of(x);
  const std::int64_t columns = x.shape()[-1];
  const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
  const bool has_beta = gradients.beta.defined();
  const Scratch<float> dgamma(context, std::max<std::int64_t>(1, chunks * columns));
  const Scratch<float> dbeta(context, has_beta ? std::max<std::int64_t>(1, chunks * columns) : 1);
  const auto run = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      const std::int64_t row = chunk * chunk_rows;
      HWY_DYNAMIC_DISPATCH(row_norm_backward_kernel)
      (norm, {.rows = static_cast<std::size_t>(std::min(chunk_rows, rows - row)),
              .x = x.data<float>() + row * columns,
              .dy = dy.data<float>() + row * columns,
              .mean = norm.centered ? statistics.mean.data<float>() + row : nullptr,
              .scale = statistics.scale.data<float>() + row,
              .base = has_base ? dx.data<float>() + row * columns : nullptr,
              .dx = dx.data<float>() + row * columns,
              .dgamma = dgamma.data() + chunk * columns,
              .dbeta = has_beta ? dbeta.data() + chunk * columns : nullptr});
    }
  };
  parallel_ranges(context, chunks, 1, run);
  const std::int64_t parts = std::max<std::int64_t>(1, chunks);
  if (chunks == 0) {
    std::fill_n(dgamma.data(), columns, 0.0f);
    if (has_beta) std::fill_n(dbeta.data(), columns, 0.0f);
  }
  merge_chunks(context, parts, columns, dgamma.data(), gradients.add_gamma, gradients.gamma);
  if (has_beta) {
    merge_chunks(context, parts, columns, dbeta.data(), gradients.add_beta, gradients.beta);
  }
  return dx;
}

}  // namespace

RowNormOutput layer_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                         const Tensor& beta, float epsilon) {
  return row_norm(context, x, make_norm(x, gamma, beta, true, epsilon, "layer_norm"), "layer_norm");
}

Tensor layer_norm_again(OpContext& context, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const RowStatistics& statistics) {
  const RowNorm norm = make_norm(x, gamma, beta, true, 0, "layer_norm");
  const Tensor y = empty_like(context, x, "layer_norm");
  const std::int64_t columns = x.shape()[-1];
  const float* from = x.data<float>();
  float* to = y.data<float>();
  const float* mean = statistics.mean.data<float>();
  const float* scale = statistics.scale.data<float>();
  parallel_ranges(context, rows_of(x), row_grain(x), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      HWY_DYNAMIC_DISPATCH(row_norm_apply)
      (norm, from + r * columns, mean[r], scale[r], to + r * columns);
    }
  });
  return y;
}

RowNormOutput rms_norm(OpContext& context, const Tensor& x, const Tensor& gamma, float epsilon) {
  return row_norm(context, x, make_norm(x, gamma, {}, false, epsilon, "rms_norm"), "rms_norm");
}

Tensor layer_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const RowStatistics& statistics,
                           const RowNormGradients& gradients, Tensor base) {
  return row_norm_backward(context, x, dy, make_norm(x, gamma, {}, true, 0, "layer_norm_backward"),
                           statistics, gradients, std::move(base), "layer_norm_backward");
}

Tensor rms_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& gamma,
                         const RowStatistics& statistics, const RowNormGradients& gradients,
                         Tensor base) {
  return row_norm_backward(context, x, dy, make_norm(x, gamma, {}, false, 0, "rms_norm_backward"),
                           statistics, gradients, std::move(base), "rms_norm_backward");
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
