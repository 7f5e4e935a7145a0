// Operations on values: the operators of core/ops with their place on the tape.
#pragma once

#include <span>

#include "dtrain/core/autograd/pass.h"
#include "dtrain/core/ops/attention.h"
#include "dtrain/core/ops/conv.h"
#include "dtrain/core/ops/matmul.h"
#include "dtrain/core/ops/pool.h"

namespace dtrain::functions {

// x: [..., K], weight: [M, K], bias: [M] or null. [..., M].
Value linear(Pass& pass, const Value& x, const Parameter& weight, const Parameter* bias,
             ops::WeightOrder order = ops::WeightOrder::out_in);

// x: [N, H, W, I], weight: [O, I / groups, KH, KW], bias: [O] or null. [N, H', W', O].
Value conv2d(Pass& pass, const Value& x, const Parameter& weight, const Parameter* bias,
             const ops::Conv2dOptions& options);

// x: [N, ..., C]. In training normalizes by the batch's statistics and adds them to the running
// ones; in evaluation uses those. Throws ConfigError where training gives one value per channel.
Value batch_norm(Pass& pass, const Value& x, const Parameter& weight, const Parameter& bias,
                 const RunningStatistics& statistics, float epsilon);

// relu(batch_norm(x)), to the bit, with fewer trips to memory.
Value batch_norm_relu(Pass& pass, const Value& x, const Parameter& weight, const Parameter& bias,
                      const RunningStatistics& statistics, float epsilon);

// relu(batch_norm(x) + residual), to the bit; residual: as x.
Value batch_norm_add_relu(Pass& pass, const Value& x, const Value& residual,
                          const Parameter& weight, const Parameter& bias,
                          const RunningStatistics& statistics, float epsilon);

// max_pool2d(batch_norm_relu(x)) over windows of 2 x 2, stride 2.
Value batch_norm_relu_max_pool(Pass& pass, const Value& x, const Parameter& weight,
                               const Parameter& bias, const RunningStatistics& statistics,
                               float epsilon);

// x: [N, ..., C]; normalizes each sample over each group of C / groups channels.
Value group_norm(Pass& pass, const Value& x, const Parameter& weight, const Parameter& bias,
                 int groups, float epsilon);

Value relu(Pass& pass, const Value& x);
Value gelu(Pass& pass, const Value& x);
Value sigmoid(Pass& pass, const Value& x);
Value tanh(Pass& pass, const Value& x);
Value softmax(Pass& pass, const Value& x);  // over the last axis

Value max_pool2d(Pass& pass, const Value& x, const ops::Pool2dOptions& options);
Value avg_pool2d(Pass& pass, const Value& x, const ops::Pool2dOptions& options);
Value adaptive_avg_pool2d(Pass& pass, const Value& x, int out_h, int out_w);

// Does nothing in evaluation or with p = 0.
Value dropout(Pass& pass, const Value& x, float p, const RandomSite& site);

// As many elements; images are brought to NHWC order first.
Value reshape(Pass& pass, const Value& x, const Shape& shape);
// [N, ...] to [N, elements of a sample], images in H, W, C order.
Value flatten(Pass& pass, const Value& x);

// Shapes broadcast as in NumPy.
Value add(Pass& pass, const Value& a, const Value& b);
Value multiply(Pass& pass, const Value& a, const Value& b);

// Transformers: functions_sequence.cpp.

struct NormWeights {
  const Parameter& weight;
  const Parameter* bias;  // or null
  float epsilon;
};
struct LinearWeights {
  const Parameter& weight;
  const Parameter* bias;  // or null
  ops::WeightOrder order;
};

// Over the last axis of x.
Value layer_norm(Pass& pass, const Value& x, const NormWeights& norm);
Value rms_norm(Pass& pass, const Value& x, const Parameter& weight, float epsilon);

Value gelu_tanh(Pass& pass, const Value& x);
Value silu(Pass& pass, const Value& x);

// tokens: [..., T] i32, table: [V, C], positions: [P, C] or null. [..., T, C].
Value embedding(Pass& pass, const Value& tokens, const Parameter& table,
                const Parameter* positions = nullptr);

// qkv: [N, T, 3 C]; see ops::attention. `options` without dropout, which is of probability p.
Value attention(Pass& pass, const Value& qkv, ops::AttentionOptions options, float p,
                const RandomSite& site);
// Queries [N, T, C] over keys and values [N, S, C]; without dropout.
Value attention(Pass& pass, const Value& q, const Value& k, const Value& v,
                const ops::AttentionOptions& options);

Value transpose(Pass& pass, const Value& x, int a, int b);
Value concat(Pass& pass, std::span<const Value> parts, int axis);
Value slice(Pass& pass, const Value& x, int axis, std::int64_t first, std::int64_t last);

// Note [Computed again]: what is cheap beside the product that reads it, the output of a layer norm
// or of an activation, is not kept for the backward but computed there again, to the same bits.

// linear(layer_norm(x)), keeping x alone.
Value layer_norm_linear(Pass& pass, const Value& x, const NormWeights& norm,
                        const LinearWeights& linear);
// residual + linear(x).
Value linear_residual(Pass& pass, const Value& x, const LinearWeights& linear,
                      const Value& residual);
// residual + linear(gelu_tanh(x)), keeping x alone.
Value gelu_tanh_linear_residual(Pass& pass, const Value& x, const LinearWeights& linear,
                                const Value& residual);

}  // namespace dtrain::functions
