// Checks and outputs that the elementwise operators share.
#pragma once

#include <string_view>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// A new tensor of x's shape, type and layout.
inline Tensor empty_like(OpContext& context, const Tensor& x, std::string_view who) {
  return Tensor::empty(x.shape(), x.dtype(), context.allocator(), who, x.layout());
}

inline void check_alike(const Tensor& a, const Tensor& b, std::string_view who) {
  DTRAIN_CHECK(a.shape() == b.shape() && a.layout() == b.layout() && a.dtype() == b.dtype(),
               "{}: {} {} in channel blocks of {} and {} {} in channel blocks of {}", who,
               to_string(a.dtype()), to_string(a.shape()), a.layout().channel_block,
               to_string(b.dtype()), to_string(b.shape()), b.layout().channel_block);
}

inline void check_plain(const Tensor& x, std::string_view who) {
  DTRAIN_CHECK(x.layout() == Layout{}, "{}: an image in channel blocks of {}; convert it first",
               who, x.layout().channel_block);
}

}  // namespace dtrain::ops
