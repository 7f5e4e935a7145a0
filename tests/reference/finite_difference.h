// Central differences: what gradients of the references are checked against.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace dtrain::reference {

// d f / d x[i] for all i. The error is about step^2 times the third derivative.
inline std::vector<double> finite_difference(
    const std::function<double(const std::vector<double>&)>& f, std::vector<double> x,
    double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f(x);
    x[i] = at - step;
    const double below = f(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

}  // namespace dtrain::reference
