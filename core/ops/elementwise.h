// Elementwise arithmetic, copies and conversions.
#pragma once

#include <span>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// Shapes broadcast as in NumPy. Operands of equal shape and layout may be images of any layout.
Tensor add(OpContext& context, const Tensor& a, const Tensor& b);
Tensor multiply(OpContext& context, const Tensor& a, const Tensor& b);

// Sums x over the axes along which `shape` was broadcast to x's shape: the backward of add.
Tensor sum_to_shape(OpContext& context, const Tensor& x, const Shape& shape);

// y += x, elementwise; the same shape, layout and type (f32). With a context on its threads.
void add_in_place(const Tensor& y, const Tensor& x);
void add_in_place(const OpContext& context, const Tensor& y, const Tensor& x);
void add_in_place(std::span<float> y, std::span<const float> x);

Tensor scale(OpContext& context, const Tensor& x, float factor);

// Another memory order of the same image, or x itself if it has it.
Tensor to_layout(OpContext& context, const Tensor& x, Layout layout);

// f32 <-> bf16, f16; round to nearest, ties to even.
Tensor convert(OpContext& context, const Tensor& x, DType dtype);

// False if any of the values is NaN or infinite.
bool all_finite(std::span<const float> values);

}  // namespace dtrain::ops
