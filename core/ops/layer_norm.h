// Normalization of rows, the last axis of a plain tensor: layer norm, and RMS norm, which subtracts
// no mean.
//
// A row's output is a function of its statistics, so the backward, and whoever needs the output
// again there, computes it anew instead of keeping it: layer_norm_again gives the same bits.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// Of each row; [rows] f32.
struct RowStatistics {
  Tensor mean;   // of layer norm; undefined for RMS norm
  Tensor scale;  // 1 / sqrt(variance + epsilon), or of the mean square
};

struct RowNormOutput {
  Tensor y;  // as x
  RowStatistics statistics;
};

// x: [..., C], gamma: [C], beta: [C] or undefined.
RowNormOutput layer_norm(OpContext& context, const Tensor& x, const Tensor& gamma,
                         const Tensor& beta, float epsilon);
Tensor layer_norm_again(OpContext& context, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const RowStatistics& statistics);

RowNormOutput rms_norm(OpContext& context, const Tensor& x, const Tensor& gamma, float epsilon);

// Where the gradients of gamma and beta go: [C] each; beta's may be undefined.
struct RowNormGradients {
  Tensor gamma;
  Tensor beta;
  bool add_gamma = false;  // add to what is there rather than write
  bool add_beta = false;
};

// Returns dx. With `base`, of x's shape: base + dx, written over base.
Tensor layer_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const RowStatistics& statistics,
                           const RowNormGradients& gradients, Tensor base = {});
Tensor rms_norm_backward(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& gamma,
                         const RowStatistics& statistics, const RowNormGradients& gradients,
                         Tensor base = {});

}  // namespace dtrain::ops
