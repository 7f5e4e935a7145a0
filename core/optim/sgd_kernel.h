// The options of one SGD step, as its kernel takes them.
#pragma once

#include "dtrain/core/optim/step_scalars.h"

namespace dtrain {

struct SgdStep {
  StepScalars scalars;
  float weight_decay;
  float momentum;
  float gradient_share;  // 1 - dampening
  bool nesterov;
};

}  // namespace dtrain
