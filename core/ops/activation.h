// Activations, elementwise and softmax. Any shape and layout.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

Tensor relu(OpContext& context, const Tensor& x);
// dx from the output: dy where y > 0.
Tensor relu_backward(OpContext& context, const Tensor& y, const Tensor& dy);

// Exact (erf), as PyTorch's default.
Tensor gelu(OpContext& context, const Tensor& x);
Tensor gelu_backward(OpContext& context, const Tensor& x, const Tensor& dy);

Tensor sigmoid(OpContext& context, const Tensor& x);
Tensor sigmoid_backward(OpContext& context, const Tensor& y, const Tensor& dy);

Tensor tanh(OpContext& context, const Tensor& x);
Tensor tanh_backward(OpContext& context, const Tensor& y, const Tensor& dy);

// Over the last axis; plain layout.
Tensor softmax(OpContext& context, const Tensor& x);
Tensor softmax_backward(OpContext& context, const Tensor& y, const Tensor& dy);

}  // namespace dtrain::ops
