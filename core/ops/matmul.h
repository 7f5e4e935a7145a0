// Matrix products of linear layers. Weights are [M, K] as in PyTorch.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// x: [N, K], w: [M, K], bias: [M] or undefined. Returns x w^T + bias: [N, M].
Tensor linear(OpContext& context, const Tensor& x, const Tensor& w, const Tensor& bias);

// dy: [N, M], w: [M, K]. Returns dy w: [N, K].
Tensor linear_backward_input(OpContext& context, const Tensor& dy, const Tensor& w);

// Writes dw: [M, K] = dy^T x.
void linear_backward_weight(OpContext& context, const Tensor& x, const Tensor& dy,
                            const Tensor& dw);

// Writes db: [M], the column sums of dy: [N, M], in an order that its shape fixes.
void linear_backward_bias(OpContext& context, const Tensor& dy, const Tensor& db);

}  // namespace dtrain::ops
