// Batch normalization over all axes but the last (channels), in any image layout and for [N, C].
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct BatchNormOutput {
  Tensor y;          // as x
  Tensor mean;       // [C] f32
  Tensor variance;   // [C] f32, biased: divided by the count
  Tensor mean_rest;  // [C] f32: the mean is mean + mean_rest; what a float leaves over
};

// gamma, beta: [C]. Statistics are those of x.
BatchNormOutput batch_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, float epsilon);

// Statistics are given (evaluation).
Tensor batch_norm_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                            const Tensor& beta, const Tensor& mean, const Tensor& variance,
                            float epsilon);

// Writes dgamma, dbeta: [C]; returns dx.
Tensor batch_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const Tensor& mean, const Tensor& variance,
                           float epsilon, const Tensor& dgamma, const Tensor& dbeta);

// relu(batch_norm(x)) and its backward, to the bit, in two trips to memory fewer each way.
BatchNormOutput batch_norm_relu(OpContext& context, const Tensor& x, const Tensor& gamma,
                                const Tensor& beta, float epsilon);
Tensor batch_norm_relu_inference(OpContext& context, const Tensor& x, const Tensor& gamma,
                                 const Tensor& beta, const Tensor& mean, const Tensor& variance,
                                 float epsilon);
// forward: what batch_norm_relu returned for x; its y is not read and may be undefined. dy is the
// gradient of relu's output.
Tensor batch_norm_relu_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                                const Tensor& gamma, const Tensor& beta,
                                const BatchNormOutput& forward, float epsilon, const Tensor& dgamma,
                                const Tensor& dbeta);

}  // namespace dtrain::ops
