// Batch normalization over all axes but the last (channels), in any image layout and for [N, C].
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct BatchNormOutput {
  Tensor y;         // as x
  Tensor mean;      // [C] f32
  Tensor variance;  // [C] f32, biased: divided by the count
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

}  // namespace dtrain::ops
