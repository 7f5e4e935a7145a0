// Copies that change a plain tensor's shape: axes exchanged, put together, cut out. Any type.
#pragma once

#include <cstdint>
#include <span>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// Axes a and b exchanged; negative axes count from the end. Its own backward.
Tensor transpose(OpContext& context, const Tensor& x, int a, int b);

// One after the other along `axis`; the other sizes are equal.
Tensor concat(OpContext& context, std::span<const Tensor> parts, int axis);

// Elements [first, last) along `axis`.
Tensor slice(OpContext& context, const Tensor& x, int axis, std::int64_t first, std::int64_t last);
// dx of shape `x_shape`: dy there, zeros elsewhere.
Tensor slice_backward(OpContext& context, const Tensor& dy, const Shape& x_shape, int axis,
                      std::int64_t first);

}  // namespace dtrain::ops
