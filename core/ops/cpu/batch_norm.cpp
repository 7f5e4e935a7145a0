// Note [Batch norm in two looks]: the sum of squared deviations is taken about the mean of the
// chunk while the chunk is in cache, and corrected by the deviations' own sum, which should be
// zero; chunks are merged in double. So a channel of large mean and small variance comes out right,
// at one trip to memory. What a float mean leaves over, at a mean of 1e4 up to 5e-4, is kept as
// `mean_rest` and subtracted too.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "dtrain/core/ops/cpu/norm_chunks.h"
#include "dtrain/core/ops/cpu/norm_coefficients.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/scratch.h"
#include "dtrain/core/ops/norm.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// Of a chunk x: [pixels][width]: its mean is mean + mean_rest; squares: squared deviations from it.
void statistics_of_chunk(std::size_t pixels, std::size_t width, const float* x, float* mean,
                         float* mean_rest, float* squares) {
  const hn::ScalableTag<float> d;
  const auto inverse = hn::Set(d, 1.0f / static_cast<float>(pixels));
  for_each_vector(d, width, [&](std::size_t c, auto part) {
    auto s0 = hn::Zero(d);
    auto s1 = hn::Zero(d);
    auto s2 = hn::Zero(d);
    auto s3 = hn::Zero(d);
    const float* at = x + c;
    std::size_t p = 0;
    for (; p + 4 <= pixels; p += 4, at += 4 * width) {
      s0 = hn::Add(s0, part.load(d, at));
      s1 = hn::Add(s1, part.load(d, at + width));
      s2 = hn::Add(s2, part.load(d, at + 2 * width));
      s3 = hn::Add(s3, part.load(d, at + 3 * width));
    }
    for (; p < pixels; ++p, at += width) s0 = hn::Add(s0, part.load(d, at));
    const auto m = hn::Mul(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), inverse);

    s0 = s1 = s2 = s3 = hn::Zero(d);  // of deviations
    auto q0 = hn::Zero(d);            // of their squares
    auto q1 = hn::Zero(d);
    auto q2 = hn::Zero(d);
    auto q3 = hn::Zero(d);
    const auto look = [&](auto& s, auto& q, const float* from) HWY_ATTR {
      const auto deviation = hn::Sub(part.load(d, from), m);
      s = hn::Add(s, deviation);
      q = hn::MulAdd(deviation, deviation, q);
    };
    at = x + c;
    for (p = 0; p + 4 <= pixels; p += 4, at += 4 * width) {
      look(s0, q0, at);
      look(s1, q1, at + width);
      look(s2, q2, at + 2 * width);
      look(s3, q3, at + 3 * width);
    }
    for (; p < pixels; ++p, at += width) look(s0, q0, at);
    const auto sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    const auto rest = hn::Mul(sum, inverse);
    const auto square = hn::Add(hn::Add(q0, q1), hn::Add(q2, q3));
    part.store(m, d, mean + c);
    part.store(rest, d, mean_rest + c);
    // Rounding may leave less than nothing; NaN stays NaN.
    const auto corrected = hn::NegMulAdd(sum, rest, square);
    part.store(hn::IfThenZeroElse(hn::Lt(corrected, hn::Zero(d)), corrected), d, squares + c);
  });
}

// What relu after batch norm lets through of a gradient. Batch norm's output is computed again,
// with the same operations as in the forward, rather than kept.
template <BehindNorm behind, class D, class V = hn::Vec<D>>
HWY_INLINE V through(D d, V dy, V deviation, V scale, V shift) {
  if constexpr (behind == BehindNorm::relu) {
    return hn::IfThenElseZero(hn::Gt(hn::MulAdd(deviation, scale, shift), hn::Zero(d)), dy);
  } else {
    return dy;
  }
}

// Of a chunk: the sums of g and of g (x - mean - mean_rest). g is written for BehindNorm::output.
template <BehindNorm behind>
HWY_INLINE void sum_gradients(std::size_t pixels, std::size_t width, const float* x,
                              const float* dy, const float* y, const ChannelCoefficients& channels,
                              float* g, float* sum_g, float* sum_g_deviation) {
  const hn::ScalableTag<float> d;
  for_each_vector(d, width, [&](std::size_t c, auto part) HWY_ATTR {
    auto a0 = hn::Zero(d), a1 = hn::Zero(d);
    auto b0 = hn::Zero(d), b1 = hn::Zero(d);
    const auto m = part.load(d, channels.mean + c);
    const auto r = part.load(d, channels.mean_rest + c);
    const auto scale = part.load(d, channels.scale + c);
    const auto shift = part.load(d, channels.shift + c);
    const auto look = [&](auto& a, auto& b, std::size_t at) HWY_ATTR {
      const auto deviation = hn::Sub(hn::Sub(part.load(d, x + at), m), r);
      auto gradient = through<behind>(d, part.load(d, dy + at), deviation, scale, shift);
      if constexpr (behind == BehindNorm::output) {
        gradient = hn::IfThenElseZero(hn::Gt(part.load(d, y + at), hn::Zero(d)), gradient);
        part.store(gradient, d, g + at);
      }
      a = hn::Add(a, gradient);
      b = hn::MulAdd(gradient, deviation, b);
    };
    std::size_t at = c;
    std::size_t p = 0;
    for (; p + 2 <= pixels; p += 2, at += 2 * width) {
      look(a0, b0, at);
      look(a1, b1, at + width);
    }
    if (p < pixels) look(a0, b0, at);
    part.store(hn::Add(a0, a1), d, sum_g + c);
    part.store(hn::Add(b0, b1), d, sum_g_deviation + c);
  });
}

void gradient_sums_of_chunk(BehindNorm behind, std::size_t pixels, std::size_t width,
                            const float* x, const float* dy, const float* y,
                            const ChannelCoefficients& channels, float* g, float* sum_g,
                            float* sum_g_deviation) {
  const auto run = [&](auto constant) HWY_ATTR {
    sum_gradients<constant()>(pixels, width, x, dy, y, channels, g, sum_g, sum_g_deviation);
  };
  switch (behind) {
    case BehindNorm::nothing:
      return run(std::integral_constant<BehindNorm, BehindNorm::nothing>());
    case BehindNorm::relu:
      return run(std::integral_constant<BehindNorm, BehindNorm::relu>());
    case BehindNorm::output:
      return run(std::integral_constant<BehindNorm, BehindNorm::output>());
  }
}

// Calls step(i, c, part) for each vector of [pixels][width]: element i, channel c. Memory is
// walked in order; a kernel whose channels fill one vector keeps its coefficients in registers.
template <class Prepare>
HWY_INLINE void for_each_pixel(std::size_t pixels, std::size_t width, const Prepare& prepare) {
  const hn::ScalableTag<float> d;
  if (width <= hn::Lanes(d)) {
    for_each_vector(d, width, [&](std::size_t c, auto part) {
      const auto step = prepare(c, part);
      for (std::size_t p = 0; p < pixels; ++p) step(p * width);
    });
    return;
  }
  for (std::size_t p = 0; p < pixels; ++p) {
    for_each_vector(d, width, [&](std::size_t c, auto part) { prepare(c, part)(p * width + c); });
  }
}

// y = (x - mean - mean_rest) scale + shift, plus the residual, and relu of it.
template <bool relu, bool add>
HWY_INLINE void normalize(std::size_t pixels, std::size_t width, const float* x,
                          const float* residual, const ChannelCoefficients& channels, float* y) {
  const hn::ScalableTag<float> d;
  for_each_pixel(pixels, width, [&](std::size_t c, auto part) HWY_ATTR {
    return [=, m = part.load(d, channels.mean + c), r = part.load(d, channels.mean_rest + c),
            k = part.load(d, channels.scale + c),
            b = part.load(d, channels.shift + c)](std::size_t i) HWY_ATTR {
      const auto deviation = hn::Sub(hn::Sub(part.load(d, x + i), m), r);
      auto v = hn::MulAdd(deviation, k, b);
      if constexpr (add) v = hn::Add(v, part.load(d, residual + i));
      // As ops::relu: NaN stays NaN.
      if constexpr (relu) v = hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v);
      part.store(v, d, y + i);
    };
  });
}

// residual: null for none.
void normalize_chunk(bool relu, std::size_t pixels, std::size_t width, const float* x,
                     const float* residual, const ChannelCoefficients& channels, float* y) {
  if (residual == nullptr) {
    relu ? normalize<true, false>(pixels, width, x, residual, channels, y)
         : normalize<false, false>(pixels, width, x, residual, channels, y);
  } else {
    relu ? normalize<true, true>(pixels, width, x, residual, channels, y)
         : normalize<false, true>(pixels, width, x, residual, channels, y);
  }
}

// dx = g scale + (x - mean - mean_rest) slope + offset; dx may be dy.
template <BehindNorm behind>
HWY_INLINE void gradients(std::size_t pixels, std::size_t width, const float* x, const float* dy,
                          const ChannelCoefficients& channels,
                          const GradientCoefficients& coefficients, float* dx) {
  const hn::ScalableTag<float> d;
  for_each_pixel(pixels, width, [&](std::size_t c, auto part) HWY_ATTR {
    return [=, m = part.load(d, channels.mean + c), r = part.load(d, channels.mean_rest + c),
            k = part.load(d, channels.scale + c), shift = part.load(d, channels.shift + c),
            s = part.load(d, coefficients.slope + c),
            b = part.load(d, coefficients.offset + c)](std::size_t i) HWY_ATTR {
      const auto deviation = hn::Sub(hn::Sub(part.load(d, x + i), m), r);
      const auto g = through<behind>(d, part.load(d, dy + i), deviation, k, shift);
      part.store(hn::MulAdd(deviation, s, hn::MulAdd(g, k, b)), d, dx + i);
    };
  });
}

void gradient_of_chunk(bool relu, std::size_t pixels, std::size_t width, const float* x,
                       const float* dy, const ChannelCoefficients& channels,
                       const GradientCoefficients& coefficients, float* dx) {
  relu ? gradients<BehindNorm::relu>(pixels, width, x, dy, channels, coefficients, dx)
       : gradients<BehindNorm::nothing>(pixels, width, x, dy, channels, coefficients, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(statistics_of_chunk);
HWY_EXPORT(gradient_sums_of_chunk);
HWY_EXPORT(normalize_chunk);
HWY_EXPORT(gradient_of_chunk);

namespace norm_chunks {

void statistics(const ChannelChunk& chunk, std::int64_t width, const float* x, float* mean,
                float* mean_rest, float* squares) {
  HWY_DYNAMIC_DISPATCH(statistics_of_chunk)
  (static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(width), x + chunk.offset, mean,
   mean_rest, squares);
}

void normalize(const ChannelChunk& chunk, std::int64_t width, const float* x, const float* residual,
               const ChannelCoefficients& channels, bool relu, float* y) {
  HWY_DYNAMIC_DISPATCH(normalize_chunk)
  (relu, static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(width), x + chunk.offset,
   residual == nullptr ? nullptr : residual + chunk.offset, channels, y + chunk.offset);
}

void gradient_sums(const ChannelChunk& chunk, std::int64_t width, const float* x, const float* dy,
                   const float* y, const ChannelCoefficients& channels, BehindNorm behind, float* g,
                   float* sum_g, float* sum_g_deviation) {
  const bool by_output = behind == BehindNorm::output;
  HWY_DYNAMIC_DISPATCH(gradient_sums_of_chunk)
  (behind, static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(width),
   x + chunk.offset, dy + chunk.offset, by_output ? y + chunk.offset : nullptr, channels,
   by_output ? g + chunk.offset : nullptr, sum_g, sum_g_deviation);
}

void gradient(const ChannelChunk& chunk, std::int64_t width, const float* x, const float* dy,
              const ChannelCoefficients& channels, const GradientCoefficients& coefficients,
              bool relu, float* dx) {
  HWY_DYNAMIC_DISPATCH(gradient_of_chunk)
  (relu, static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(width), x + chunk.offset,
   dy + chunk.offset, channels, coefficients, dx + chunk.offset);
}

}  // namespace norm_chunks

namespace {

// Floats per channel of each chunk.
class Partials {
 public:
  Partials(const OpContext& context, const ChannelChunks& chunks, int rows)
      : width_(chunks.blocks().width),
        rows_(rows),
        memory_(context, rows * chunks.count() * width_) {}
  float* row(std::int64_t chunk, int which) const {
    return memory_.data() + (rows_ * chunk + which) * width_;
  }

 private:
  std::int64_t width_;
  int rows_;
  Scratch<float> memory_;
};

// Merges the chunks of each channel, in order: Note [Chunk sums].
ChannelStatistics merge_statistics(const ChannelChunks& chunks, const Partials& partials) {
  const ChannelBlocks& blocks = chunks.blocks();
  const auto channels = static_cast<std::size_t>(blocks.channels());
  ChannelStatistics merged{.count = blocks.count(),
                           .mean = std::vector<double>(channels),
                           .squares = std::vector<double>(channels)};
  if (merged.count == 0) return merged;
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const ChannelChunk chunk = chunks.at(i);
    const auto pixels = static_cast<double>(chunk.pixels);
    const float* mean = partials.row(i, 0);
    const float* rest = partials.row(i, 1);
    double* sum = merged.mean.data() + chunk.channel;
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      sum[c] += pixels * (double(mean[c]) + double(rest[c]));
    }
  }
  for (double& mean : merged.mean) mean /= static_cast<double>(merged.count);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const ChannelChunk chunk = chunks.at(i);
    const auto pixels = static_cast<double>(chunk.pixels);
    const float* mean = partials.row(i, 0);
    const float* rest = partials.row(i, 1);
    const float* squares = partials.row(i, 2);
    const double* of_all = merged.mean.data() + chunk.channel;
    double* sum = merged.squares.data() + chunk.channel;
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      const double shift = double(mean[c]) + double(rest[c]) - of_all[c];
      sum[c] += double(squares[c]) + pixels * shift * shift;
    }
  }
  return merged;
}

BatchNormOutput forward(OpContext& context, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, float epsilon, bool relu) {
  BatchNormOutput output = batch_moments(context, channel_statistics(context, x));
  output.y = batch_norm_apply(context, x, {}, gamma, beta, output, epsilon, relu);
  return output;
}

// beta: where relu follows; else undefined.
Tensor backward(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& gamma,
                const Tensor& beta, const BatchNormOutput& moments, float epsilon,
                const Tensor& dgamma, const Tensor& dbeta) {
  const BehindNorm behind = beta.defined() ? BehindNorm::relu : BehindNorm::nothing;
  const ChannelGradientSums sums =
      batch_norm_gradient_sums(context, x, dy, gamma, beta, moments, epsilon, behind, {}, {});
  batch_norm_parameter_gradients(sums, moments, epsilon, dgamma, dbeta);
  Tensor dx = empty_like(context, x, "batch_norm input gradient");
  batch_norm_input_gradient(context, x, dy, gamma, beta, moments, epsilon, behind, sums,
                            channel_blocks(x).count(), dx);
  return dx;
}

}  // namespace

ChannelStatistics channel_statistics(OpContext& context, const Tensor& x) {
  const ChannelChunks chunks(channel_blocks(x));
  const float* data = x.data<float>();
  const Partials partials(context, chunks, 3);
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    norm_chunks::statistics(chunk, chunks.blocks().width, data, partials.row(i, 0),
                            partials.row(i, 1), partials.row(i, 2));
  });
  return merge_statistics(chunks, partials);
}

BatchNormOutput batch_moments(OpContext& context, const ChannelStatistics& statistics) {
  const auto channels = static_cast<std::int64_t>(statistics.mean.size());
  const auto per_channel = [&](std::string_view who) {
    return Tensor::empty({channels}, DType::f32, context.allocator(), who);
  };
  BatchNormOutput moments{.y = {},
                          .mean = per_channel("batch_norm mean"),
                          .variance = per_channel("batch_norm variance"),
                          .mean_rest = per_channel("batch_norm mean")};
  const double count = static_cast<double>(std::max<std::int64_t>(1, statistics.count));
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = statistics.mean[c];
    float& rounded = moments.mean.data<float>()[c];
    rounded = static_cast<float>(mean);
    moments.mean_rest.data<float>()[c] = static_cast<float>(mean - static_cast<double>(rounded));
    moments.variance.data<float>()[c] = static_cast<float>(statistics.squares[c] / count);
  }
  return moments;
}

Tensor batch_norm_apply(OpContext& context, const Tensor& x, const Tensor& residual,
                        const Tensor& gamma, const Tensor& beta, const BatchNormOutput& moments,
                        float epsilon, bool relu) {
  if (residual.defined()) check_alike(x, residual, "batch_norm_apply");
  const ChannelChunks chunks(channel_blocks(x));
  const NormCoefficients coefficients(context, chunks.blocks(), gamma, beta, moments, epsilon);
  const Tensor y = empty_like(context, x, "batch_norm output");
  const float* from = x.data<float>();
  const float* added = residual.defined() ? residual.data<float>() : nullptr;
  float* to = y.data<float>();
  chunks.for_each(context, [&](std::int64_t, const ChannelChunk& chunk) {
    norm_chunks::normalize(chunk, chunks.blocks().width, from, added,
                           coefficients.from(chunk.channel), relu, to);
  });
  return y;
}

ChannelGradientSums batch_norm_gradient_sums(OpContext& context, const Tensor& x, const Tensor& dy,
                                             const Tensor& gamma, const Tensor& beta,
                                             const BatchNormOutput& moments, float epsilon,
                                             BehindNorm behind, const Tensor& y, const Tensor& g) {
  check_alike(x, dy, "batch_norm_gradient_sums");
  const bool by_output = behind == BehindNorm::output;
  if (by_output) {
    check_alike(x, y, "batch_norm_gradient_sums");
    check_alike(x, g, "batch_norm_gradient_sums");
  }
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  const NormCoefficients coefficients(context, blocks, gamma, beta, moments, epsilon);
  const float* values = x.data<float>();
  const float* output_gradients = dy.data<float>();
  const float* outputs = by_output ? y.data<float>() : nullptr;
  float* gradients = by_output ? g.data<float>() : nullptr;
  const Partials partials(context, chunks, 2);
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    norm_chunks::gradient_sums(chunk, blocks.width, values, output_gradients, outputs,
                               coefficients.from(chunk.channel), behind, gradients,
                               partials.row(i, 0), partials.row(i, 1));
  });
  const auto channels = static_cast<std::size_t>(blocks.channels());
  ChannelGradientSums sums{std::vector<double>(channels), std::vector<double>(channels)};
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const std::int64_t first = chunks.at(i).channel;
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      sums.g[first + c] += double(partials.row(i, 0)[c]);
      sums.g_deviation[first + c] += double(partials.row(i, 1)[c]);
    }
  }
  return sums;
}

void batch_norm_parameter_gradients(const ChannelGradientSums& sums, const BatchNormOutput& moments,
                                    float epsilon, const Tensor& dgamma, const Tensor& dbeta) {
  const Shape channels{static_cast<std::int64_t>(sums.g.size())};
  DTRAIN_CHECK(dgamma.shape() == channels && dbeta.shape() == channels &&
                   moments.variance.shape() == channels,
               "batch_norm: gradients {} and {} for {} channels", to_string(dgamma.shape()),
               to_string(dbeta.shape()), sums.g.size());
  for (std::size_t c = 0; c < sums.g.size(); ++c) {
    const double r = inverse_deviation(moments.variance.data<float>()[c], epsilon);
    dgamma.data<float>()[c] = static_cast<float>(r * sums.g_deviation[c]);
    dbeta.data<float>()[c] = static_cast<float>(sums.g[c]);
  }
}

void batch_norm_input_gradient(OpContext& context, const Tensor& x, const Tensor& dy,
                               const Tensor& gamma, const Tensor& beta,
                               const BatchNormOutput& moments, float epsilon, BehindNorm behind,
                               const ChannelGradientSums& sums, std::int64_t count,
                               const Tensor& dx) {
  check_alike(x, dy, "batch_norm_input_gradient");
  check_alike(x, dx, "batch_norm_input_gradient");
  DTRAIN_CHECK(behind != BehindNorm::output, "batch_norm_input_gradient wants g");
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  const NormCoefficients coefficients(context, blocks, gamma, beta, moments, epsilon);
  const InputGradientCoefficients of_gradient(context, gamma, moments, epsilon, sums, count);
  const float* values = x.data<float>();
  const float* gradients = dy.data<float>();
  float* to = dx.data<float>();
  chunks.for_each(context, [&](std::int64_t, const ChannelChunk& chunk) {
    norm_chunks::gradient(chunk, blocks.width, values, gradients, coefficients.from(chunk.channel),
                          of_gradient.from(chunk.channel), behind == BehindNorm::relu, to);
  });
}

BatchNormOutput batch_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, float epsilon) {
  return forward(context, x, gamma, beta, epsilon, false);
}

BatchNormOutput batch_norm_relu(OpContext& context, const Tensor& x, const Tensor& gamma,
                                const Tensor& beta, float epsilon) {
  return forward(context, x, gamma, beta, epsilon, true);
}

Tensor batch_norm_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                            const Tensor& beta, const Tensor& mean, const Tensor& variance,
                            float epsilon) {
  return batch_norm_apply(context, x, {}, gamma, beta, {{}, mean, variance, {}}, epsilon, false);
}

Tensor batch_norm_relu_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                                 const Tensor& beta, const Tensor& mean, const Tensor& variance,
                                 float epsilon) {
  return batch_norm_apply(context, x, {}, gamma, beta, {{}, mean, variance, {}}, epsilon, true);
}

Tensor batch_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const BatchNormOutput& forward, float epsilon,
                           const Tensor& dgamma, const Tensor& dbeta) {
  return backward(context, x, dy, gamma, {}, forward, epsilon, dgamma, dbeta);
}

Tensor batch_norm_relu_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                                const Tensor& gamma, const Tensor& beta,
                                const BatchNormOutput& forward, float epsilon, const Tensor& dgamma,
                                const Tensor& dbeta) {
  return backward(context, x, dy, gamma, beta, forward, epsilon, dgamma, dbeta);
}

}  // namespace dtrain::ops
#endif
