// Losses. Each is a sum over valid targets, never a mean: the one division, by the count of the
// whole step, happens after all virtual ranks were added.
#pragma once

#include <cstdint>
#include <span>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct LossSums {
  double loss = 0;    // sum over valid targets
  double weight = 0;  // what a mean divides by: valid targets, or the sum of their class weights
};

struct CrossEntropyOptions {
  float label_smoothing = 0;
  std::int64_t ignore_index = -100;
  Tensor class_weights;  // [C] f32, or undefined
};

// logits: [..., C]; targets: [...] i64, as many. A target outside [0, C) that is not ignore_index
// throws DTRAIN_CHECK: data sets check their labels. As torch.nn.functional.cross_entropy with
// reduction="sum"; `weight` is its divisor under reduction="mean".
LossSums cross_entropy(OpContext& context, const Tensor& logits, const Tensor& targets,
                       const CrossEntropyOptions& options);
// Gradient of seed * loss, of the logits' shape; written over them where nobody else holds them.
Tensor cross_entropy_backward(OpContext& context, Tensor logits, const Tensor& targets,
                              const CrossEntropyOptions& options, float seed);

// x, targets: [N, ...] f32. Sum of squares; weight is the number of elements.
LossSums mse(OpContext& context, const Tensor& x, const Tensor& targets);
Tensor mse_backward(OpContext& context, const Tensor& x, const Tensor& targets, float seed);

// Binary cross entropy of logits; targets in [0, 1]; weight is the number of elements.
LossSums bce_with_logits(OpContext& context, const Tensor& x, const Tensor& targets);
Tensor bce_with_logits_backward(OpContext& context, const Tensor& x, const Tensor& targets,
                                float seed);

struct TopK {
  std::int64_t targets = 0;  // valid ones
  std::int64_t top1 = 0;
  std::int64_t top5 = 0;
};

// logits: [..., C]. The target is in the top k if fewer than k classes score higher, or equal with
// a lower number.
TopK count_top_k(OpContext& context, const Tensor& logits, const Tensor& targets,
                 std::int64_t ignore_index);

}  // namespace dtrain::ops
