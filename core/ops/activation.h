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

// By tanh, as GPT-2 has it: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
Tensor gelu_tanh(OpContext& context, const Tensor& x);
// Returns dx, and in `y`, where it is defined, gelu_tanh(x) again, to the bit.
Tensor gelu_tanh_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                          const Tensor& y = {});

// x sigmoid(x).
Tensor silu(OpContext& context, const Tensor& x);
Tensor silu_backward(OpContext& context, const Tensor& x, const Tensor& dy);

Tensor sigmoid(OpContext& context, const Tensor& x);
Tensor sigmoid_backward(OpContext& context, const Tensor& y, const Tensor& dy);

Tensor tanh(OpContext& context, const Tensor& x);
Tensor tanh_backward(OpContext& context, const Tensor& y, const Tensor& dy);

// Over the last axis; plain layout.
Tensor softmax(OpContext& context, const Tensor& x);
Tensor softmax_backward(OpContext& context, const Tensor& y, const Tensor& dy);

}  // namespace dtrain::ops
