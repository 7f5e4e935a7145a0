// Operations on values: the operators of core/ops with their place on the tape.
#pragma once

#include "dtrain/core/autograd/pass.h"
#include "dtrain/core/ops/conv.h"
#include "dtrain/core/ops/pool.h"

namespace dtrain::functions {

// x: [N, K], weight: [M, K], bias: [M] or null. [N, M].
Value linear(Pass& pass, const Value& x, const Parameter& weight, const Parameter* bias);

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

}  // namespace dtrain::functions
