// Per sample the sums of batch norm's kernels, merged over the channels of each group; then each
// channel is normalized with its group's moments.
#include "dtrain/core/ops/group_norm.h"

#include <cmath>
#include <vector>

#include "dtrain/core/ops/cpu/norm_chunks.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/scratch.h"

namespace dtrain::ops {

namespace {

// As channel_blocks, but a plane never holds pixels of two samples.
ChannelBlocks sample_blocks(const Tensor& x) {
  ChannelBlocks blocks = channel_blocks(x);
  const std::int64_t samples = x.shape()[0];
  blocks.planes = samples * blocks.blocks;
  blocks.pixels = samples == 0 ? 0 : x.elements() / samples / blocks.channels();
  return blocks;
}

// Sizes of a call.
struct Groups {
  std::int64_t samples, channels, groups, per_group, pixels;
  double count() const { return static_cast<double>(per_group * pixels); }  // values of a group
};

Groups groups_of(const Tensor& x, const Tensor& gamma, const ChannelBlocks& blocks, int groups) {
  const std::int64_t channels = blocks.channels();
  DTRAIN_CHECK(groups > 0 && channels % groups == 0, "group_norm: {} channels in {} groups",
               channels, groups);
  DTRAIN_CHECK(gamma.shape() == Shape{channels}, "group_norm: gamma {} for {} channels",
               to_string(gamma.shape()), channels);
  return {x.shape()[0], channels, groups, channels / groups, blocks.pixels};
}

// What the kernels take, per sample and channel.
class SampleCoefficients {
 public:
  SampleCoefficients(const OpContext& context, const Groups& sizes, const Tensor& gamma,
                     const float* beta, const GroupNormOutput& moments, float epsilon)
      : channels_(sizes.channels),
        rows_(sizes.samples * sizes.channels),
        memory_(context, 4 * rows_) {
    for (std::int64_t n = 0; n < sizes.samples; ++n) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        const std::int64_t group = n * sizes.groups + c / sizes.per_group;
        const std::int64_t at = n * channels_ + c;
        const double variance = moments.variance.data<float>()[group];
        mean()[at] = moments.mean.data<float>()[group];
        rest()[at] = moments.mean_rest.data<float>()[group];
        scale()[at] = static_cast<float>(gamma.data<float>()[c] /
                                         std::sqrt(variance + static_cast<double>(epsilon)));
        shift()[at] = beta == nullptr ? 0 : beta[c];
      }
    }
  }
  ChannelCoefficients of(std::int64_t sample, std::int64_t channel) const {
    return ChannelCoefficients{mean(), rest(), scale(), shift()}.from(sample * channels_ + channel);
  }

 private:
  float* mean() const { return memory_.data(); }
  float* rest() const { return memory_.data() + rows_; }
  float* scale() const { return memory_.data() + 2 * rows_; }
  float* shift() const { return memory_.data() + 3 * rows_; }

  std::int64_t channels_;
  std::int64_t rows_;
  Scratch<float> memory_;
};

// Fills mean, mean_rest and variance from three rows of partial sums per chunk, in the chunks'
// order: Note [Chunk sums].
void merge_moments(const ChannelChunks& chunks, const Groups& sizes, const float* partials,
                   const GroupNormOutput& output) {
  const std::int64_t width = chunks.blocks().width;
  const auto groups = static_cast<std::size_t>(sizes.samples * sizes.groups);
  std::vector<double> mean(groups), squares(groups);
  const auto for_each = [&](const auto& body) {
    for (std::int64_t i = 0; i < chunks.count(); ++i) {
      const ChannelChunk chunk = chunks.at(i);
      const std::int64_t sample = chunks.plane(i) / chunks.blocks().blocks;
      for (std::int64_t c = 0; c < width; ++c) {
        const float* at = partials + 3 * i * width + c;
        body(sample * sizes.groups + (chunk.channel + c) / sizes.per_group,
             static_cast<double>(chunk.pixels), double(at[0]) + double(at[width]),
             double(at[2 * width]));
      }
    }
  };
  for_each([&](std::int64_t group, double pixels, double part, double) {
    mean[group] += pixels * part / sizes.count();
  });
  for_each([&](std::int64_t group, double pixels, double part, double part_squares) {
    const double shift = part - mean[group];
    squares[group] += part_squares + pixels * shift * shift;
  });
  for (std::size_t g = 0; g < groups; ++g) {
    const float rounded = static_cast<float>(mean[g]);
    output.mean.data<float>()[g] = rounded;
    output.mean_rest.data<float>()[g] = static_cast<float>(mean[g] - double(rounded));
    output.variance.data<float>()[g] = static_cast<float>(squares[g] / sizes.count());
  }
}

}  // namespace

GroupNormOutput group_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, int groups, float epsilon) {
  const ChannelChunks chunks(sample_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  const Groups sizes = groups_of(x, gamma, blocks, groups);
  DTRAIN_CHECK(beta.shape() == gamma.shape(), "group_norm: beta {} and gamma {}",
               to_string(beta.shape()), to_string(gamma.shape()));
  const Scratch<float> partials(context, 3 * chunks.count() * blocks.width);
  const float* from = x.data<float>();
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    float* row = partials.data() + 3 * i * blocks.width;
    norm_chunks::statistics(chunk, blocks.width, from, row, row + blocks.width,
                            row + 2 * blocks.width);
  });
  const auto per_group = [&] {
    return Tensor::empty({sizes.samples, sizes.groups}, DType::f32, context.allocator(),
                         "group_norm moments");
  };
  GroupNormOutput output{
      .y = {}, .mean = per_group(), .mean_rest = per_group(), .variance = per_group()};
  merge_moments(chunks, sizes, partials.data(), output);
  const SampleCoefficients coefficients(context, sizes, gamma, beta.data<float>(), output, epsilon);
  output.y = empty_like(context, x, "group_norm output");
  float* to = output.y.data<float>();
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    norm_chunks::normalize(chunk, blocks.width, from, nullptr,
                           coefficients.of(chunks.plane(i) / blocks.blocks, chunk.channel), false,
                           to);
  });
  return output;
}

Tensor group_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const GroupNormOutput& forward, int groups,
                           float epsilon, const Tensor& dgamma, const Tensor& dbeta) {
  check_alike(x, dy, "group_norm_backward");
  const ChannelChunks chunks(sample_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  const Groups sizes = groups_of(x, gamma, blocks, groups);
  const SampleCoefficients coefficients(context, sizes, gamma, nullptr, forward, epsilon);
  const float* values = x.data<float>();
  const float* gradients = dy.data<float>();
  const Scratch<float> partials(context, 2 * chunks.count() * blocks.width);
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    float* row = partials.data() + 2 * i * blocks.width;
    norm_chunks::gradient_sums(chunk, blocks.width, values, gradients, nullptr,
                               coefficients.of(chunks.plane(i) / blocks.blocks, chunk.channel),
                               BehindNorm::nothing, nullptr, row, row + blocks.width);
  });

  // Sums of dy and of dy (x - mean): per sample and channel, and times gamma per group.
  const auto rows = static_cast<std::size_t>(sizes.samples * sizes.channels);
  std::vector<double> sum(rows), sum_deviation(rows);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const std::int64_t at = chunks.plane(i) / blocks.blocks * sizes.channels + chunks.at(i).channel;
    const float* row = partials.data() + 2 * i * blocks.width;
    for (std::int64_t c = 0; c < blocks.width; ++c) {
      sum[at + c] += double(row[c]);
      sum_deviation[at + c] += double(row[blocks.width + c]);
    }
  }
  const Scratch<float> slope(context, static_cast<std::int64_t>(rows));
  const Scratch<float> offset(context, static_cast<std::int64_t>(rows));
  std::vector<double> gamma_gradient(sizes.channels), beta_gradient(sizes.channels);
  for (std::int64_t n = 0; n < sizes.samples; ++n) {
    for (std::int64_t g = 0; g < sizes.groups; ++g) {
      const double variance = forward.variance.data<float>()[n * sizes.groups + g];
      const double r = 1 / std::sqrt(variance + static_cast<double>(epsilon));
      double of_group = 0, of_group_deviation = 0;
      for (std::int64_t c = g * sizes.per_group; c < (g + 1) * sizes.per_group; ++c) {
        const double factor = gamma.data<float>()[c];
        of_group += factor * sum[n * sizes.channels + c];
        of_group_deviation += factor * sum_deviation[n * sizes.channels + c];
        gamma_gradient[c] += r * sum_deviation[n * sizes.channels + c];
        beta_gradient[c] += sum[n * sizes.channels + c];
      }
      for (std::int64_t c = g * sizes.per_group; c < (g + 1) * sizes.per_group; ++c) {
        slope.data()[n * sizes.channels + c] =
            static_cast<float>(-r * r * r * of_group_deviation / sizes.count());
        offset.data()[n * sizes.channels + c] = static_cast<float>(-r * of_group / sizes.count());
      }
    }
  }
  for (std::int64_t c = 0; c < sizes.channels; ++c) {
    dgamma.values<float>()[c] = static_cast<float>(gamma_gradient[c]);
    dbeta.values<float>()[c] = static_cast<float>(beta_gradient[c]);
  }
  const Tensor dx = empty_like(context, x, "group_norm input gradient");
  float* to = dx.data<float>();
  chunks.for_each(context, [&](std::int64_t i, const ChannelChunk& chunk) {
    const std::int64_t sample = chunks.plane(i) / blocks.blocks;
    const GradientCoefficients of_gradient{slope.data(), offset.data()};
    norm_chunks::gradient(chunk, blocks.width, values, gradients,
                          coefficients.of(sample, chunk.channel),
                          of_gradient.from(sample * sizes.channels + chunk.channel), false, to);
  });
  return dx;
}

}  // namespace dtrain::ops
