// Linear layers in plain double: weights are [M, K].
#pragma once

#include <cstddef>
#include <vector>

namespace dtrain::reference {

// x: [n, k], w: [m, k], bias: [m] or empty. Returns [n, m].
inline std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& w,
                                  const std::vector<double>& bias, std::size_t n, std::size_t k,
                                  std::size_t m) {
  std::vector<double> y(n * m);
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column < m; ++column) {
      double sum = bias.empty() ? 0 : bias[column];
      for (std::size_t i = 0; i < k; ++i) sum += x[row * k + i] * w[column * k + i];
      y[row * m + column] = sum;
    }
  }
  return y;
}

struct LinearGradients {
  std::vector<double> dx, dw, db;
};

// dy: [n, m].
inline LinearGradients linear_backward(const std::vector<double>& x, const std::vector<double>& w,
                                       const std::vector<double>& dy, std::size_t n, std::size_t k,
                                       std::size_t m) {
  LinearGradients g{std::vector<double>(n * k), std::vector<double>(m * k), std::vector<double>(m)};
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column < m; ++column) {
      const double d = dy[row * m + column];
      g.db[column] += d;
      for (std::size_t i = 0; i < k; ++i) {
        g.dx[row * k + i] += d * w[column * k + i];
        g.dw[column * k + i] += d * x[row * k + i];
      }
    }
  }
  return g;
}

}  // namespace dtrain::reference
