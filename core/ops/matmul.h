// Matrix products of linear layers. Weights are [M, K] as in PyTorch, or [K, M].
#pragma once

#include <cstdint>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// How a weight of K inputs and M outputs lies in memory.
enum class WeightOrder : std::uint8_t {
  out_in,  // [M, K], as torch.nn.Linear has it
  in_out   // [K, M], as GPT-2's files have it
};

// x: [..., K], bias: [M] or undefined. Returns x w^T + bias: [..., M]; with `residual`, of the
// output's shape: residual + x w^T + bias.
Tensor linear(OpContext& context, const Tensor& x, const Tensor& w, const Tensor& bias,
              WeightOrder order = WeightOrder::out_in, const Tensor& residual = {});

// dy: [..., M]. Returns dy w: [..., K].
Tensor linear_backward_input(OpContext& context, const Tensor& dy, const Tensor& w,
                             WeightOrder order = WeightOrder::out_in);

// Writes dw = dy^T x, in the weight's order; with `adds`, adds it to what is there.
void linear_backward_weight(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            WeightOrder order = WeightOrder::out_in, bool adds = false);

// Writes db: [M], the column sums of dy: [..., M], in an order that its shape fixes.
void linear_backward_bias(OpContext& context, const Tensor& dy, const Tensor& db);

}  // namespace dtrain::ops
