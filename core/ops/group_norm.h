// Group normalization: each sample over the pixels and channels of each of its groups, in any image
// layout and for [N, C]. As torch.nn.functional.group_norm.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct GroupNormOutput {
  Tensor y;          // as x
  Tensor mean;       // [N, groups] f32
  Tensor mean_rest;  // [N, groups] f32: the mean is mean + mean_rest
  Tensor variance;   // [N, groups] f32, biased
};

// x: [N, ..., C], gamma, beta: [C]; C a multiple of groups.
GroupNormOutput group_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                           const Tensor& beta, int groups, float epsilon);

// Writes dgamma, dbeta: [C]; returns dx. The y of `forward` is not read and may be undefined.
Tensor group_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const GroupNormOutput& forward, int groups,
                           float epsilon, const Tensor& dgamma, const Tensor& dbeta);

}  // namespace dtrain::ops
