// 2-D pooling of images in any layout; the output keeps the layout.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct Pool2dOptions {
  int kernel = 2;
  int stride = 2;
  int padding = 0;
};

struct MaxPoolOutput {
  Tensor y;
  Tensor index;  // u8 or i32 per output: which element of the window won (the first of equals)
};

MaxPoolOutput max_pool2d(OpContext& context, const Tensor& x, const Pool2dOptions& options);
Tensor max_pool2d_backward(OpContext& context, const Tensor& dy, const Tensor& index,
                           const Shape& x_shape, const Pool2dOptions& options);

// Padding counts in the divisor, as in PyTorch.
Tensor avg_pool2d(OpContext& context, const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d_backward(OpContext& context, const Tensor& dy, const Shape& x_shape,
                           const Pool2dOptions& options);

// Output [N, out_h, out_w, C]; windows as PyTorch cuts them.
Tensor adaptive_avg_pool2d(OpContext& context, const Tensor& x, int out_h, int out_w);
Tensor adaptive_avg_pool2d_backward(OpContext& context, const Tensor& dy, const Shape& x_shape);

}  // namespace dtrain::ops
