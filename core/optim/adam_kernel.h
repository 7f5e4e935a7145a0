// The options of one Adam step, as its kernel takes them: computed in double, rounded once.
#pragma once

#include "dtrain/core/optim/step_scalars.h"

namespace dtrain {

struct AdamStep {
  StepScalars scalars;
  float weight_decay;  // added to the gradient; 0 if decoupled
  float keep;          // what a weight is multiplied by first; 1 unless decoupled
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float eps;
  float step_size;        // lr / (1 - beta1^t)
  float root_correction;  // 1 / sqrt(1 - beta2^t)
};

}  // namespace dtrain
