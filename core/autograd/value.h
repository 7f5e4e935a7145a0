// A tensor on the tape of a Pass: the data, and which tape entry made it.
#pragma once

#include "dtrain/core/tensor/tensor.h"

namespace dtrain {

struct Value {
  Tensor tensor;
  int entry = -1;  // tape entry whose output this is; -1: no gradient flows here
  bool needs_gradient() const { return entry >= 0; }
  const Shape& shape() const { return tensor.shape(); }
};

}  // namespace dtrain
