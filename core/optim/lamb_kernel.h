// The options of one LAMB step, as its kernels take them: computed in double, rounded once.
#pragma once

#include "dtrain/core/optim/step_scalars.h"

namespace dtrain {

struct LambStep {
  StepScalars scalars;
  float weight_decay;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float eps;
  float mean_correction;  // 1 / (1 - beta1^t)
  float root_correction;  // 1 / sqrt(1 - beta2^t)
  float step_size;        // lr * ratio; of the second sweep alone
};

}  // namespace dtrain
