#include "dtrain/parallel/train/recipe.h"

#include <algorithm>
#include <cmath>

#include "dtrain/core/base/error.h"

namespace dtrain {

LossOptions loss_options(const config::Loss& loss) {
  LossOptions options;
  options.name = loss.name();
  options.label_smoothing = static_cast<float>(loss.label_smoothing());
  options.ignore_index = loss.ignore_index();
  for (const double weight : loss.class_weights()) {
    options.class_weights.push_back(static_cast<float>(weight));
  }
  return options;
}

Reduction reduction_named(const std::string& name) {
  if (name == "reproducible") return Reduction::reproducible;
  if (name == "fast") return Reduction::fast;
  throw ConfigError(fmt::format("parallel.reduction: '{}' is not one of reproducible, fast", name));
}

// Note [Counts, not means]
//
// Every loss is a sum over valid targets; the division by their number, which no rank knows alone,
// happens once, after all gradients were added. Sums of a large batch would leave the range of
// 16-bit formats, so backward starts from 2^-k rather than 1, with 2^k near the number of targets.
// A power of two changes no bit of the mantissa, and what is left to divide by, count * 2^-k, is
// exact in fp32 too.
double gradient_seed(double nominal_targets) {
  return std::exp2(-std::ceil(std::log2(std::max(1.0, nominal_targets))));
}

}  // namespace dtrain
