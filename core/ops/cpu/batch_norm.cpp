// Note [Batch norm in two looks]: the sum of squared deviations is taken about the mean of the
// chunk while the chunk is in cache, and corrected by the deviations' own sum, which should be
// zero; chunks are merged in double. So a channel of large mean and small variance comes out right,
// at one trip to memory. What a float mean leaves over, at a mean of 1e4 up to 5e-4, is kept as
// `mean_rest` and subtracted too; the backward finds it again as the mean of x - mean.
#include <algorithm>
#include <cmath>

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

// Of a chunk: the sums of dy, of dy (x - mean) and of x - mean.
void gradient_sums_of_chunk(std::size_t pixels, std::size_t width, const float* x, const float* dy,
                            const float* mean, float* sum_dy, float* sum_dy_x, float* sum_x) {
  const hn::ScalableTag<float> d;
  for_each_vector(d, width, [&](std::size_t c, auto part) {
    auto a0 = hn::Zero(d), a1 = hn::Zero(d);
    auto b0 = hn::Zero(d), b1 = hn::Zero(d);
    auto s0 = hn::Zero(d), s1 = hn::Zero(d);
    const auto m = part.load(d, mean + c);
    const auto look = [&](auto& a, auto& b, auto& s, std::size_t at) HWY_ATTR {
      const auto deviation = hn::Sub(part.load(d, x + at), m);
      const auto g = part.load(d, dy + at);
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

// y = (x - mean - mean_rest) scale + shift.
void normalize_chunk(std::size_t pixels, std::size_t width, const float* x, const float* mean,
                     const float* mean_rest, const float* scale, const float* shift, float* y) {
  const hn::ScalableTag<float> d;
  for_each_pixel(pixels, width, [&](std::size_t c, auto part) HWY_ATTR {
    return [=, m = part.load(d, mean + c), r = part.load(d, mean_rest + c),
            k = part.load(d, scale + c), b = part.load(d, shift + c)](std::size_t i) HWY_ATTR {
      const auto deviation = hn::Sub(hn::Sub(part.load(d, x + i), m), r);
      part.store(hn::MulAdd(deviation, k, b), d, y + i);
    };
  });
}

// dx = dy k + (x - mean - mean_rest) slope + shift.
void gradient_of_chunk(std::size_t pixels, std::size_t width, const float* x, const float* dy,
                       const float* mean, const float* mean_rest, const float* k,
                       const float* slope, const float* shift, float* dx) {
  const hn::ScalableTag<float> d;
  for_each_pixel(pixels, width, [&](std::size_t c, auto part) HWY_ATTR {
    return [=, m = part.load(d, mean + c), r = part.load(d, mean_rest + c), a = part.load(d, k + c),
            s = part.load(d, slope + c), b = part.load(d, shift + c)](std::size_t i) HWY_ATTR {
      const auto deviation = hn::Sub(hn::Sub(part.load(d, x + i), m), r);
      part.store(hn::MulAdd(deviation, s, hn::MulAdd(part.load(d, dy + i), a, b)), d, dx + i);
    };
  });
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

// Coefficients per channel: rows of floats in one piece of scratch memory.
class Coefficients {
 public:
  Coefficients(const OpContext& context, int rows, std::int64_t channels)
      : channels_(channels), memory_(context, rows * channels) {}
  float* row(int index) const { return memory_.data() + index * channels_; }

 private:
  std::int64_t channels_;
  Scratch<float> memory_;
};

Tensor normalize(OpContext& context, const Tensor& x, const ChannelChunks& chunks,
                 const float* mean, const float* mean_rest, const float* scale,
                 const float* shift) {
  const Tensor y = empty_like(context, x, "batch_norm output");
  const float* from = x.data<float>();
  float* to = y.data<float>();
  chunks.for_each(context, [&](std::int64_t, const ChannelChunk& chunk) {
    const std::int64_t c = chunk.channel;
    HWY_DYNAMIC_DISPATCH(normalize_chunk)
    (static_cast<std::size_t>(chunk.pixels), static_cast<std::size_t>(chunks.blocks().width),
     from + chunk.offset, mean + c, mean_rest + c, scale + c, shift + c, to + chunk.offset);
  });
  return y;
}

}  // namespace

BatchNormOutput batch_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, float epsilon) {
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

  BatchNormOutput output;
  output.mean = Tensor::empty({channels}, DType::f32, context.allocator(), "batch_norm mean");
  output.variance =
      Tensor::empty({channels}, DType::f32, context.allocator(), "batch_norm variance");
  float* mean = output.mean.data<float>();
  float* variance = output.variance.data<float>();
  const Coefficients coefficients(context, 2, channels);
  float* rest = coefficients.row(0);
  float* scale = coefficients.row(1);
  for (std::int64_t c = 0; c < channels; ++c) {
    mean[c] = static_cast<float>(merged.data()[c].mean);
    rest[c] = static_cast<float>(merged.data()[c].mean - static_cast<double>(mean[c]));
    variance[c] = static_cast<float>(merged.data()[c].variance);
    scale[c] = static_cast<float>(gamma.data<float>()[c] * inverse_deviation(variance[c], epsilon));
  }
  output.y = normalize(context, x, chunks, mean, rest, scale, beta.data<float>());
  return output;
}

Tensor batch_norm_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                            const Tensor& beta, const Tensor& mean, const Tensor& variance,
                            float epsilon) {
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  check_channels(gamma, blocks, "gamma");
  check_channels(beta, blocks, "beta");
  check_channels(mean, blocks, "mean");
  check_channels(variance, blocks, "variance");
  const std::int64_t channels = blocks.channels();
  const Coefficients coefficients(context, 2, channels);
  float* rest = coefficients.row(0);
  float* scale = coefficients.row(1);
  for (std::int64_t c = 0; c < channels; ++c) {
    rest[c] = 0;
    scale[c] = static_cast<float>(gamma.data<float>()[c] *
                                  inverse_deviation(variance.data<float>()[c], epsilon));
  }
  return normalize(context, x, chunks, mean.data<float>(), rest, scale, beta.data<float>());
}

Tensor batch_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const Tensor& mean, const Tensor& variance,
                           float epsilon, const Tensor& dgamma, const Tensor& dbeta) {
  check_alike(x, dy, "batch_norm_backward");
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  for (const Tensor* parameter : {&gamma, &mean, &variance, &dgamma, &dbeta}) {
    check_channels(*parameter, blocks, "a parameter of the backward");
  }
  const auto width = static_cast<std::size_t>(blocks.width);
  const float* values = x.data<float>();
  const float* gradients = dy.data<float>();
  const float* means = mean.data<float>();
  const Partials partials(context, chunks);
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    HWY_DYNAMIC_DISPATCH(gradient_sums_of_chunk)
    (static_cast<std::size_t>(chunk.pixels), width, values + chunk.offset, gradients + chunk.offset,
     means + chunk.channel, partials.row(i, 0), partials.row(i, 1), partials.row(i, 2));
  });
  struct Sums {
    double dy, dy_x, x;
  };
  const std::int64_t channels = blocks.channels();
  const Scratch<Sums> sums(context, channels);
  std::fill_n(sums.data(), channels, Sums{0, 0, 0});
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    Sums* sum = sums.data() + chunks.at(i).channel;
    for (std::size_t c = 0; c < width; ++c) {
      sum[c].dy += double(partials.row(i, 0)[c]);
      sum[c].dy_x += double(partials.row(i, 1)[c]);
      sum[c].x += double(partials.row(i, 2)[c]);
    }
  }

  const Coefficients coefficients(context, 4, channels);
  float* rest = coefficients.row(0);
  float* k = coefficients.row(1);
  float* slope = coefficients.row(2);
  float* shift = coefficients.row(3);
  const double inverse_count = blocks.count() == 0 ? 0 : 1.0 / static_cast<double>(blocks.count());
  for (std::int64_t c = 0; c < channels; ++c) {
    const Sums& sum = sums.data()[c];
    const double r = inverse_deviation(variance.data<float>()[c], epsilon);
    const double mean_rest = sum.x * inverse_count;
    const double gamma_gradient = r * (sum.dy_x - mean_rest * sum.dy);
    const double factor = gamma.data<float>()[c] * r;
    dgamma.data<float>()[c] = static_cast<float>(gamma_gradient);
    dbeta.data<float>()[c] = static_cast<float>(sum.dy);
    rest[c] = static_cast<float>(mean_rest);
    k[c] = static_cast<float>(factor);
    slope[c] = static_cast<float>(-factor * r * gamma_gradient * inverse_count);
    shift[c] = static_cast<float>(-factor * sum.dy * inverse_count);
  }
  const Tensor dx = empty_like(context, x, "batch_norm input gradient");
  float* to = dx.data<float>();
  chunks.for_each(context, [&](std::int64_t, const ChannelChunk& chunk) {
    const std::int64_t c = chunk.channel;
    HWY_DYNAMIC_DISPATCH(gradient_of_chunk)
    (static_cast<std::size_t>(chunk.pixels), width, values + chunk.offset, gradients + chunk.offset,
     means + c, rest + c, k + c, slope + c, shift + c, to + chunk.offset);
  });
  return dx;
}

}  // namespace dtrain::ops
#endif
