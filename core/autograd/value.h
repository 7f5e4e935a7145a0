// A tensor on the tape of a Pass: the data, and which tape entry made it.
#pragma once

#include <functional>
#include <memory>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain {

struct Value {
  // Makes a tensor again, to the bit.
  using Again = std::function<Tensor(OpContext&)>;

  Tensor tensor;
  int entry = -1;  // tape entry whose output this is; -1: no gradient flows here
  // Where the tensor is cheap to make from what the tape keeps anyway; else null.
  std::shared_ptr<const Again> again = nullptr;

  bool needs_gradient() const { return entry >= 0; }
  const Shape& shape() const { return tensor.shape(); }
};

// Note [Kept values]: what a backward reads of a value. Batch norm and ReLU behind a convolution
// are cheap to compute again from the convolution's output, which their own backward needs; so the
// next convolution keeps the recipe, not the tensor, and the tape holds one tensor of the two.
class Kept {
 public:
  explicit Kept(const Value& value)
      : tensor_(value.again ? Tensor() : value.tensor), again_(value.again) {}
  Tensor get(OpContext& context) const { return again_ ? (*again_)(context) : tensor_; }

 private:
  Tensor tensor_;
  std::shared_ptr<const Value::Again> again_;
};

}  // namespace dtrain
