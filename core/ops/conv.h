// 2-D convolution. Weights are [O, I / groups, KH, KW] as in PyTorch; images are [N, H, W, C] in
// NHWC or channel blocks (Note [Channel blocks]), whatever the layout of x or dy. The output's
// layout is a function of the shapes and the instruction set alone (Note [Layouts of
// convolutions]): blocks of 16 channels with AVX-512, else of 8, where oneDNN is fast in them; NHWC
// otherwise.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct Conv2dOptions {
  int stride = 1;
  int padding = 0;
  int dilation = 1;
  int groups = 1;
};

Layout conv2d_output_layout(const Shape& x, const Shape& w, const Conv2dOptions& options);

// x: [N, H, W, I], bias: [O] or undefined. Returns [N, H', W', O].
Tensor conv2d(OpContext& context, const Tensor& x, const Tensor& w, const Tensor& bias,
              const Conv2dOptions& options);

// Returns dx with the shape and layout given.
Tensor conv2d_backward_input(OpContext& context, const Tensor& dy, const Tensor& w,
                             const Shape& x_shape, Layout x_layout, const Conv2dOptions& options);

// Writes dw: [O, I / groups, KH, KW]; under `add` adds to it.
void conv2d_backward_weight(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            const Conv2dOptions& options, bool add = false);

// Writes db: [O], sums of dy over all but the channels.
void conv2d_backward_bias(OpContext& context, const Tensor& dy, const Tensor& db);

}  // namespace dtrain::ops
