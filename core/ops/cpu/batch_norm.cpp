// Note [Batch norm in two looks]: the sum of squared deviations is taken about the mean of the
// chunk while the chunk is in cache, and corrected by the deviations' own sum, which should be
// zero; chunks are merged in double. So a channel of large mean and small variance comes out right,
// at one trip to memory. What a float mean leaves over, at a mean of 1e4 up to 5e-4, is kept as
// `mean_rest` and subtracted too; the backward finds it again as the mean of x - mean.
#include <algorithm>
#include <cmath>

#include "dtrain/core/ops/cpu/batch_norm_coefficients.h"
#include "dtrain/core/ops/cpu/channel_chunks.h"
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

using Vector = hn::Vec<hn::ScalableTag<float>>;

// What relu after batch norm lets through of a gradient. Its input is computed again, with the same
// operations as in the forward, rather than kept.
template <bool active, class Part>
class Relu {
  static constexpr hn::ScalableTag<float> d{};

 public:
  HWY_INLINE Relu(Part part, const ChannelCoefficients& channels, std::size_t c)
      : rest_(part.load(d, channels.mean_rest + c)),
        scale_(part.load(d, channels.scale + c)),
        shift_(part.load(d, channels.shift + c)) {}
  // deviation: x - mean.
  HWY_INLINE Vector gradient(Vector dy, Vector deviation) const {
    const auto y = hn::MulAdd(hn::Sub(deviation, rest_), scale_, shift_);
    return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), dy);
  }

 private:
  Vector rest_;
  Vector scale_;
  Vector shift_;
};

template <class Part>
class Relu<false, Part> {
 public:
  HWY_INLINE Relu(Part, const ChannelCoefficients&, std::size_t) {}
  HWY_INLINE Vector gradient(Vector dy, Vector) const { return dy; }
};

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

// Of a chunk: the sums of g, of g (x - mean) and of x - mean, where g is dy, or under `relu` what
// relu lets through of it.
template <bool relu>
HWY_INLINE void sum_gradients(std::size_t pixels, std::size_t width, const float* x,
                              const float* dy, const ChannelCoefficients& channels, float* sum_dy,
                              float* sum_dy_x, float* sum_x) {
  const hn::ScalableTag<float> d;
  for_each_vector(d, width, [&](std::size_t c, auto part) HWY_ATTR {
    auto a0 = hn::Zero(d), a1 = hn::Zero(d);
    auto b0 = hn::Zero(d), b1 = hn::Zero(d);
    auto s0 = hn::Zero(d), s1 = hn::Zero(d);
    const auto m = part.load(d, channels.mean + c);
    const Relu<relu, decltype(part)> through(part, channels, c);
    const auto look = [&](auto& a, auto& b, auto& s, std::size_t at) HWY_ATTR {
      const auto deviation = hn::Sub(part.load(d, x + at), m);
      const auto g = through.gradient(part.load(d, dy + at), deviation);
      a = hn::Add(a, g);
      b = hn::MulAdd(g, deviation, b);
      s = hn::Add(s, deviation);
    };
    std::size_t at = c;
    std::size_t p = 0;
    for (; p + 2 <= pixels; p += 2, at += 2 * width) {
      look(a0, b0, s0, at);
      look(a1, b1, s1, at + width);
    }
    if (p < pixels) look(a0, b0, s0, at);
    part.store(hn::Add(a0, a1), d, sum_dy + c);
    part.store(hn::Add(b0, b1), d, sum_dy_x + c);
    part.store(hn::Add(s0, s1), d, sum_x + c);
  });
}

void gradient_sums_of_chunk(bool relu, std::size_t pixels, std::size_t width, const float* x,
                            const float* dy, const ChannelCoefficients& channels, float* sum_dy,
                            float* sum_dy_x, float* sum_x) {
  if (relu) {
    sum_gradients<true>(pixels, width, x, dy, channels, sum_dy, sum_dy_x, sum_x);
  } else {
    sum_gradients<false>(pixels, width, x, dy, channels, sum_dy, sum_dy_x, sum_x);
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

// y = (x - mean - mean_rest) scale + shift, and relu of it.
void normalize_chunk(bool relu, std::size_t pixels, std::size_t width, const float* x,
                     const ChannelCoefficients& channels, float* y) {
  const hn::ScalableTag<float> d;
  const auto run = [&](const auto& function) HWY_ATTR {
    for_each_pixel(pixels, width, [&](std::size_t c, auto part) HWY_ATTR {
      return [=, m = part.load(d, channels.mean + c), r = part.load(d, channels.mean_rest + c),
              k = part.load(d, channels.scale + c),
              b = part.load(d, channels.shift + c)](std::size_t i) HWY_ATTR {
        const auto deviation = hn::Sub(hn::Sub(part.load(d, x + i), m), r);
        part.store(function(hn::MulAdd(deviation, k, b)), d, y + i);
      };
    });
  };
  if (relu) {
    // As ops::relu: NaN stays NaN.
    run([d](auto v) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v); });
  } else {
    run([](auto v) HWY_ATTR { return v; });
  }
}

// dx = g scale + (x - mean - mean_rest) slope + offset, with g as in sum_gradients. The rest of the
// mean that the backward finds need not be the forward's to the bit, so both are given.
template <bool relu>
HWY_INLINE void gradients(std::size_t pixels, std::size_t width, const float* x, const float* dy,
                          const ChannelCoefficients& channels,
                          const GradientCoefficients& coefficients, float* dx) {
  const hn::ScalableTag<float> d;
  for_each_pixel(pixels, width, [&](std::size_t c, auto part) HWY_ATTR {
    const Relu<relu, decltype(part)> through(part, channels, c);
    return [=, m = part.load(d, channels.mean + c), r = part.load(d, coefficients.mean_rest + c),
            k = part.load(d, channels.scale + c), s = part.load(d, coefficients.slope + c),
            b = part.load(d, coefficients.offset + c)](std::size_t i) HWY_ATTR {
      const auto deviation = hn::Sub(part.load(d, x + i), m);
      const auto g = through.gradient(part.load(d, dy + i), deviation);
      part.store(hn::MulAdd(hn::Sub(deviation, r), s, hn::MulAdd(g, k, b)), d, dx + i);
    };
  });
}

void gradient_of_chunk(bool relu, std::size_t pixels, std::size_t width, const float* x,
                       const float* dy, const ChannelCoefficients& channels,
                       const GradientCoefficients& coefficients, float* dx) {
  if (relu) {
    gradients<true>(pixels, width, x, dy, channels, coefficients, dx);
  } else {
    gradients<false>(pixels, width, x, dy, channels, coefficients, dx);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

namespace {

HWY_EXPORT(statistics_of_chunk);
HWY_EXPORT(gradient_sums_of_chunk);
HWY_EXPORT(normalize_chunk);
HWY_EXPORT(gradient_of_chunk);

// Three floats per channel of each chunk.
class Partials {
 public:
  Partials(const OpContext& context, const ChannelChunks& chunks)
      : width_(chunks.blocks().width), memory_(context, 3 * chunks.count() * width_) {}
  float* row(std::int64_t chunk, int which) const {
    return memory_.data() + (3 * chunk + which) * width_;
  }

 private:
  std::int64_t width_;
  Scratch<float> memory_;
};

struct Statistics {
  double mean;
  double variance;
};

// Merges the chunks of each channel, in order: Note [Chunk sums].
void merge_statistics(const ChannelChunks& chunks, const Partials& partials, Statistics* merged) {
  const ChannelBlocks& blocks = chunks.blocks();
  const auto count = static_cast<double>(blocks.count());
  std::fill_n(merged, blocks.channels(), Statistics{0, 0});
  if (blocks.count() == 0) return;
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const ChannelChunk chunk = chunks.at(i);
    const auto pixels = static_cast<double>(chunk.pixels);
    const float* mean = partials.row(i, 0);
    const float* rest = partials.row(i, 1);
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      merged[chunk.channel + c].mean += pixels * (double(mean[c]) + double(rest[c]));
    }
  }
  for (std::int64_t c = 0; c < blocks.channels(); ++c) merged[c].mean /= count;
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const ChannelChunk chunk = chunks.at(i);
    const auto pixels = static_cast<double>(chunk.pixels);
    const float* mean = partials.row(i, 0);
    const float* rest = partials.row(i, 1);
    const float* squares = partials.row(i, 2);
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      Statistics& channel = merged[chunk.channel + c];
      const double shift = double(mean[c]) + double(rest[c]) - channel.mean;
      channel.variance += double(squares[c]) + pixels * shift * shift;
    }
  }
  for (std::int64_t c = 0; c < blocks.channels(); ++c) merged[c].variance /= count;
}

void check_channels(const Tensor& parameter, const ChannelBlocks& blocks, std::string_view who) {
  DTRAIN_CHECK(parameter.shape() == Shape{blocks.channels()}, "batch_norm: {} {} for {} channels",
               who, to_string(parameter.shape()), blocks.channels());
}

double inverse_deviation(float variance, float epsilon) {
  return 1.0 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon));
}

// y, or relu of it.
Tensor normalize(OpContext& context, const Tensor& x, const ChannelChunks& chunks,
                 const ChannelCoefficients& channels, bool relu) {
  const Tensor y = empty_like(context, x, "batch_norm output");
  const float* from = x.data<float>();
  float* to = y.data<float>();
  chunks.for_each(context, [&](std::int64_t, const ChannelChunk& chunk) {
    HWY_DYNAMIC_DISPATCH(normalize_chunk)
    (relu, static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(chunks.blocks().width),
     from + chunk.offset, channels.from(chunk.channel), to + chunk.offset);
  });
  return y;
}

void fill_scale(std::int64_t channels, const Tensor& gamma, const float* variance, float epsilon,
                float* scale) {
  const float* factor = gamma.data<float>();
  for (std::int64_t c = 0; c < channels; ++c) {
    scale[c] = static_cast<float>(factor[c] * inverse_deviation(variance[c], epsilon));
  }
}

BatchNormOutput forward(OpContext& context, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, float epsilon, bool relu) {
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  check_channels(gamma, blocks, "gamma");
  check_channels(beta, blocks, "beta");
  const float* data = x.data<float>();
  const Partials partials(context, chunks);
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    HWY_DYNAMIC_DISPATCH(statistics_of_chunk)
    (static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(blocks.width),
     data + chunk.offset, partials.row(i, 0), partials.row(i, 1), partials.row(i, 2));
  });
  const std::int64_t channels = blocks.channels();
  const Scratch<Statistics> merged(context, channels);
  merge_statistics(chunks, partials, merged.data());

  const auto per_channel = [&](std::string_view who) {
    return Tensor::empty({channels}, DType::f32, context.allocator(), who);
  };
  BatchNormOutput output{.y = {},
                         .mean = per_channel("batch_norm mean"),
                         .variance = per_channel("batch_norm variance"),
                         .mean_rest = per_channel("batch_norm mean")};
  float* mean = output.mean.data<float>();
  float* variance = output.variance.data<float>();
  float* rest = output.mean_rest.data<float>();
  for (std::int64_t c = 0; c < channels; ++c) {
    const Statistics& of_channel = merged.data()[c];
    mean[c] = static_cast<float>(of_channel.mean);
    rest[c] = static_cast<float>(of_channel.mean - static_cast<double>(mean[c]));
    variance[c] = static_cast<float>(of_channel.variance);
  }
  const Scratch<float> scale(context, channels);
  fill_scale(channels, gamma, variance, epsilon, scale.data());
  output.y = normalize(context, x, chunks, {mean, rest, scale.data(), beta.data<float>()}, relu);
  return output;
}

Tensor inference(OpContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                 const Tensor& mean, const Tensor& variance, float epsilon, bool relu) {
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  check_channels(gamma, blocks, "gamma");
  check_channels(beta, blocks, "beta");
  check_channels(mean, blocks, "mean");
  check_channels(variance, blocks, "variance");
  const std::int64_t channels = blocks.channels();
  const Scratch<float> rest(context, channels);
  const Scratch<float> scale(context, channels);
  std::fill_n(rest.data(), channels, 0.0f);
  fill_scale(channels, gamma, variance.data<float>(), epsilon, scale.data());
  return normalize(context, x, chunks,
                   {mean.data<float>(), rest.data(), scale.data(), beta.data<float>()}, relu);
}

// Sums over a channel.
struct GradientSums {
  double dy, dy_x, x;
};

void merge_gradient_sums(const ChannelChunks& chunks, const Partials& partials,
                         GradientSums* sums) {
  const ChannelBlocks& blocks = chunks.blocks();
  std::fill_n(sums, blocks.channels(), GradientSums{0, 0, 0});
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    GradientSums* sum = sums + chunks.at(i).channel;
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      sum[c].dy += double(partials.row(i, 0)[c]);
      sum[c].dy_x += double(partials.row(i, 1)[c]);
      sum[c].x += double(partials.row(i, 2)[c]);
    }
  }
}

// relu_shift: beta, and relu_rest: the forward's mean_rest, where relu follows; else null.
Tensor backward(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& gamma,
                const Tensor& mean, const Tensor& variance, float epsilon, const Tensor& dgamma,
                const Tensor& dbeta, const float* relu_shift, const float* relu_rest) {
  check_alike(x, dy, "batch_norm_backward");
  const bool relu = relu_shift != nullptr;
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  for (const Tensor* parameter : {&gamma, &mean, &variance, &dgamma, &dbeta}) {
    check_channels(*parameter, blocks, "a parameter of the backward");
  }
  const std::int64_t channels = blocks.channels();
  const auto width = static_cast<std::size_t>(blocks.width);
  const float* values = x.data<float>();
  const float* output_gradients = dy.data<float>();
  const Scratch<float> scale(context, channels);
  fill_scale(channels, gamma, variance.data<float>(), epsilon, scale.data());
  const ChannelCoefficients coefficients{mean.data<float>(), relu_rest, scale.data(), relu_shift};

  const Partials partials(context, chunks);
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    HWY_DYNAMIC_DISPATCH(gradient_sums_of_chunk)
    (relu, static_cast<std::size_t>(chunk.pixels), width, values + chunk.offset,
     output_gradients + chunk.offset, coefficients.from(chunk.channel), partials.row(i, 0),
     partials.row(i, 1), partials.row(i, 2));
  });
  const Scratch<GradientSums> sums(context, channels);
  merge_gradient_sums(chunks, partials, sums.data());

  const Scratch<float> rest(context, channels);
  const Scratch<float> slope(context, channels);
  const Scratch<float> offset(context, channels);
  const double inverse_count = blocks.count() == 0 ? 0 : 1.0 / static_cast<double>(blocks.count());
  for (std::int64_t c = 0; c < channels; ++c) {
    const GradientSums& sum = sums.data()[c];
    const double r = inverse_deviation(variance.data<float>()[c], epsilon);
    const double mean_rest = sum.x * inverse_count;
    const double gamma_gradient = r * (sum.dy_x - mean_rest * sum.dy);
    const double factor = gamma.data<float>()[c] * r;
    dgamma.data<float>()[c] = static_cast<float>(gamma_gradient);
    dbeta.data<float>()[c] = static_cast<float>(sum.dy);
    rest.data()[c] = static_cast<float>(mean_rest);
    slope.data()[c] = static_cast<float>(-factor * r * gamma_gradient * inverse_count);
    offset.data()[c] = static_cast<float>(-factor * sum.dy * inverse_count);
  }
  const GradientCoefficients of_gradient{rest.data(), slope.data(), offset.data()};
  const Tensor dx = empty_like(context, x, "batch_norm input gradient");
  float* to = dx.data<float>();
  chunks.for_each(context, [&](std::int64_t, const ChannelChunk& chunk) {
    HWY_DYNAMIC_DISPATCH(gradient_of_chunk)
    (relu, static_cast<std::size_t>(chunk.pixels), width, values + chunk.offset,
     output_gradients + chunk.offset, coefficients.from(chunk.channel),
     of_gradient.from(chunk.channel), to + chunk.offset);
  });
  return dx;
}

}  // namespace

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
  return inference(context, x, gamma, beta, mean, variance, epsilon, false);
}

Tensor batch_norm_relu_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                                 const Tensor& beta, const Tensor& mean, const Tensor& variance,
                                 float epsilon) {
  return inference(context, x, gamma, beta, mean, variance, epsilon, true);
}

Tensor batch_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const Tensor& mean, const Tensor& variance,
                           float epsilon, const Tensor& dgamma, const Tensor& dbeta) {
  return backward(context, x, dy, gamma, mean, variance, epsilon, dgamma, dbeta, nullptr, nullptr);
}

Tensor batch_norm_relu_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                                const Tensor& gamma, const Tensor& beta,
                                const BatchNormOutput& forward, float epsilon, const Tensor& dgamma,
                                const Tensor& dbeta) {
  const ChannelBlocks blocks = channel_blocks(x);
  check_channels(beta, blocks, "beta");
  check_channels(forward.mean_rest, blocks, "mean_rest");
  return backward(context, x, dy, gamma, forward.mean, forward.variance, epsilon, dgamma, dbeta,
                  beta.data<float>(), forward.mean_rest.data<float>());
}

}  // namespace dtrain::ops
#endif
