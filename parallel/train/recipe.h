// Words and numbers of a recipe as the library's own types.
#pragma once

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/nn/loss.h"
#include "dtrain/parallel/reduce/reducer.h"

namespace dtrain {

LossOptions loss_options(const config::Loss& loss);
Reduction reduction_named(const std::string& name);

// The power of two that backward is seeded with: 2^-k, where 2^k is the smallest power of two that
// is at least `nominal_targets`. See Note [Counts, not means].
double gradient_seed(double nominal_targets);

}  // namespace dtrain
