// Batch norm, ReLU and max pooling over windows of 2 x 2 in one sweep: what stands between the
// convolutions of a small network. The image between them is never written.
#pragma once

#include "dtrain/core/ops/norm.h"

namespace dtrain::ops {

// max_pool2d(batch_norm_relu(x)), kernel 2, stride 2, to the bit. x: [N, H, W, C] in any layout;
// [N, H / 2, W / 2, C].
Tensor batch_norm_relu_max_pool(OpContext& context, const Tensor& x, const Tensor& gamma,
                                const Tensor& beta, const BatchNormOutput& moments, float epsilon);

// As batch_norm_gradient_sums and batch_norm_input_gradient. y: what the forward returned; dy: its
// gradient. Of equal values in a window the first one gets the gradient.
ChannelGradientSums batch_norm_relu_max_pool_gradient_sums(OpContext& context, const Tensor& x,
                                                           const Tensor& y, const Tensor& dy,
                                                           const Tensor& gamma, const Tensor& beta,
                                                           const BatchNormOutput& moments,
                                                           float epsilon);
// Returns dx.
Tensor batch_norm_relu_max_pool_input_gradient(OpContext& context, const Tensor& x, const Tensor& y,
                                               const Tensor& dy, const Tensor& gamma,
                                               const Tensor& beta, const BatchNormOutput& moments,
                                               float epsilon, const ChannelGradientSums& sums,
                                               std::int64_t count);

}  // namespace dtrain::ops
