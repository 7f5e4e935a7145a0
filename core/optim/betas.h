// What the optimizers of Adam's family do with their betas.
#pragma once

#include <cstdint>

namespace dtrain {

// Throws ConfigError unless 0 <= beta < 1.
void check_beta(double beta);

// base^exponent by squaring: the same bits with any mathematical library.
double integer_power(double base, std::int64_t exponent);

}  // namespace dtrain
