// What a model is told about the data it will see.
#pragma once

#include <cstdint>

#include "dtrain/core/tensor/dtype.h"
#include "dtrain/core/tensor/shape.h"

namespace dtrain {

struct ModelInput {
  Shape shape;               // of one sample: [features], [H, W, C], or [tokens]
  std::int64_t classes = 0;  // of label targets; 0 where targets are numbers
  Shape target = {};         // of one sample's target where targets are numbers
  DType dtype = DType::f32;  // of inputs; tokens are i32
};

}  // namespace dtrain
