#include "dtrain/core/optim/betas.h"

#include "dtrain/core/base/error.h"

namespace dtrain {

void check_beta(double beta) {
  if (!(beta >= 0 && beta < 1)) {
    throw ConfigError(fmt::format("optimizer.betas: {} is not in [0, 1)", beta));
  }
}

double integer_power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace dtrain
