// The numbers of one optimizer step. They are known only when the step is committed, after
// backward, so the kernels read them from this block rather than from the recipe.
#pragma once

#include <cstdint>

namespace dtrain {

// A gradient enters the update as (sum / gradient_divisor) * clip_coefficient. The division is
// IEEE's, of the loss scale times the count of valid targets, so the order of unscaling and
// clipping is fixed here and nowhere else.
struct StepScalars {
  float lr = 0;
  float gradient_divisor = 1;
  float clip_coefficient = 1;
  std::int64_t step = 0;  // updates applied before this one: what Schedule::rate takes
  bool apply = true;      // false: the step is off, nothing is written
};

}  // namespace dtrain
