// Sums over all axes but the channels: gradients of biases.
#pragma once

#include <span>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// sums[c] = sum of x over all but the last axis, in any image layout. The order of the sum is a
// function of the shape and layout (runs of pixels in float, then the runs in double).
void channel_sums(OpContext& context, const Tensor& x, std::span<float> sums);

}  // namespace dtrain::ops
