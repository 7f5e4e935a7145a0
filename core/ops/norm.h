// Batch normalization over all axes but the last (channels), in any image layout and for [N, C].
//
// In stages, so that a layer can pool the sums of several batches between them, and add and ReLU in
// the same sweep:
//
//   forward:   channel_statistics(x) -> batch_moments -> batch_norm_apply
//   backward:  batch_norm_gradient_sums -> batch_norm_parameter_gradients
//                                       -> batch_norm_input_gradient
//
// or, for one batch, at once.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// Of a batch, or of several.
struct ChannelStatistics {
  std::int64_t count = 0;       // values per channel
  std::vector<double> mean;     // [C]
  std::vector<double> squares;  // [C]: sums of squared deviations from the mean
};
ChannelStatistics channel_statistics(OpContext& context, const Tensor& x);

struct BatchNormOutput {
  Tensor y;          // as x
  Tensor mean;       // [C] f32
  Tensor variance;   // [C] f32, biased: divided by the count
  Tensor mean_rest;  // [C] f32: the mean is mean + mean_rest; what a float leaves over
};

// What normalizing takes: all of BatchNormOutput but y. Without values: zeros.
BatchNormOutput batch_moments(OpContext& context, const ChannelStatistics& statistics);

// gamma, beta: [C]. Statistics are those of x.
BatchNormOutput batch_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, float epsilon);
// relu(batch_norm(x)), to the bit.
BatchNormOutput batch_norm_relu(OpContext& context, const Tensor& x, const Tensor& gamma,
                                const Tensor& beta, float epsilon);

// y = (x - mean) / sqrt(variance + epsilon) gamma + beta, plus `residual` (of x's shape and layout;
// or undefined), and under `relu` what is positive of it.
Tensor batch_norm_apply(OpContext& context, const Tensor& x, const Tensor& residual,
                        const Tensor& gamma, const Tensor& beta, const BatchNormOutput& moments,
                        float epsilon, bool relu);

// Statistics are given (evaluation).
Tensor batch_norm_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                            const Tensor& beta, const Tensor& mean, const Tensor& variance,
                            float epsilon);
Tensor batch_norm_relu_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                                 const Tensor& beta, const Tensor& mean, const Tensor& variance,
                                 float epsilon);

// What follows batch norm, as its backward sees it: g, the gradient of batch norm's own output, is
// made of dy, the gradient of what follows.
enum class BehindNorm : std::uint8_t {
  nothing,  // g = dy
  relu,     // dy where batch norm's output was positive: it is computed again
  output    // dy where y, the output of what follows, is positive; g is written
};

// Per channel, of one batch or of several.
struct ChannelGradientSums {
  std::vector<double> g;            // [C]
  std::vector<double> g_deviation;  // [C]: g (x - mean - mean_rest)
};

// y and g: of x's shape and layout, for BehindNorm::output; g may be dy.
ChannelGradientSums batch_norm_gradient_sums(OpContext& context, const Tensor& x, const Tensor& dy,
                                             const Tensor& gamma, const Tensor& beta,
                                             const BatchNormOutput& moments, float epsilon,
                                             BehindNorm behind, const Tensor& y, const Tensor& g);

// Writes dgamma, dbeta: [C].
void batch_norm_parameter_gradients(const ChannelGradientSums& sums, const BatchNormOutput& moments,
                                    float epsilon, const Tensor& dgamma, const Tensor& dbeta);

// Writes dx, which may be dy. `sums` and `count` are of all values that the moments were taken of.
// For BehindNorm::output dy is g, and `nothing` is said.
void batch_norm_input_gradient(OpContext& context, const Tensor& x, const Tensor& dy,
                               const Tensor& gamma, const Tensor& beta,
                               const BatchNormOutput& moments, float epsilon, BehindNorm behind,
                               const ChannelGradientSums& sums, std::int64_t count,
                               const Tensor& dx);

// Writes dgamma, dbeta: [C]; returns dx. `forward`: what batch_norm returned for x; its y is not
// read and may be undefined.
Tensor batch_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const BatchNormOutput& forward, float epsilon,
                           const Tensor& dgamma, const Tensor& dbeta);
// The same of batch_norm_relu; dy is the gradient of relu's output.
Tensor batch_norm_relu_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                                const Tensor& gamma, const Tensor& beta,
                                const BatchNormOutput& forward, float epsilon, const Tensor& dgamma,
                                const Tensor& dbeta);

}  // namespace dtrain::ops
