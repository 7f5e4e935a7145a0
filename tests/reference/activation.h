// Activations in plain double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace dtrain::reference {

inline double relu(double x) {
  return x > 0 ? x : 0;
}
inline double relu_slope(double x) {
  return x > 0 ? 1 : 0;
}

inline double gelu(double x) {
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}
inline double gelu_slope(double x) {
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
}

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
inline double sigmoid_slope(double x) {
  return sigmoid(x) * sigmoid(-x);
}

inline double tanh(double x) {
  return std::tanh(x);
}
inline double tanh_slope(double x) {
  return 1 / (std::cosh(x) * std::cosh(x));
}

// Over rows of `columns` values.
inline std::vector<double> softmax(const std::vector<double>& x, std::size_t columns) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    const double max = *std::max_element(x.begin() + row, x.begin() + row + columns);
    double sum = 0;
    for (std::size_t i = row; i < row + columns; ++i) sum += std::exp(x[i] - max);
    for (std::size_t i = row; i < row + columns; ++i) y[i] = std::exp(x[i] - max) / sum;
  }
  return y;
}

inline std::vector<double> softmax_backward(const std::vector<double>& y,
                                            const std::vector<double>& dy, std::size_t columns) {
  std::vector<double> dx(y.size());
  for (std::size_t row = 0; row < y.size(); row += columns) {
    double dot = 0;
    for (std::size_t i = row; i < row + columns; ++i) dot += y[i] * dy[i];
    for (std::size_t i = row; i < row + columns; ++i) dx[i] = y[i] * (dy[i] - dot);
  }
  return dx;
}

}  // namespace dtrain::reference
