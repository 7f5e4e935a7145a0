// The kernels of batch and group norm: one chunk of an image, [pixels][width], with coefficients
// per channel.
#pragma once

#include <cstdint>

#include "dtrain/core/ops/cpu/batch_norm_coefficients.h"
#include "dtrain/core/ops/cpu/channel_chunks.h"
#include "dtrain/core/ops/norm.h"

namespace dtrain::ops::norm_chunks {

// Of x, per channel: the mean is mean + mean_rest; squares: summed squared deviations from it.
void statistics(const ChannelChunk& chunk, std::int64_t width, const float* x, float* mean,
                float* mean_rest, float* squares);

// y = (x - mean - mean_rest) scale + shift, plus residual (or null), and under `relu` relu of it.
void normalize(const ChannelChunk& chunk, std::int64_t width, const float* x, const float* residual,
               const ChannelCoefficients& channels, bool relu, float* y);

// Per channel: sums of g and of g (x - mean - mean_rest). y and g for BehindNorm::output, else
// null.
void gradient_sums(const ChannelChunk& chunk, std::int64_t width, const float* x, const float* dy,
                   const float* y, const ChannelCoefficients& channels, BehindNorm behind, float* g,
                   float* sum_g, float* sum_g_deviation);

// dx = g scale + (x - mean - mean_rest) slope + offset; dx may be dy.
void gradient(const ChannelChunk& chunk, std::int64_t width, const float* x, const float* dy,
              const ChannelCoefficients& channels, const GradientCoefficients& coefficients,
              bool relu, float* dx);

}  // namespace dtrain::ops::norm_chunks
