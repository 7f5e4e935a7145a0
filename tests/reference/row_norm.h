// Layer norm and RMS norm in plain double, row by row.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace dtrain::reference {

struct RowNorm {
  std::size_t columns = 0;
  bool centered = true;  // layer norm; else RMS norm
  double epsilon = 0;

  std::vector<double> normalized(const double* x) const {
    const double n = static_cast<double>(columns);
    double mean = 0, square = 0;
    for (std::size_t c = 0; centered && c < columns; ++c) mean += x[c] / n;
    for (std::size_t c = 0; c < columns; ++c) square += (x[c] - mean) * (x[c] - mean) / n;
    std::vector<double> y(columns);
    for (std::size_t c = 0; c < columns; ++c) y[c] = (x[c] - mean) / std::sqrt(square + epsilon);
    return y;
  }

  std::vector<double> forward(const std::vector<double>& x, const std::vector<double>& gamma,
                              const std::vector<double>& beta) const {
    std::vector<double> y(x.size());
    for (std::size_t row = 0; row < x.size(); row += columns) {
      const std::vector<double> of_row = normalized(&x[row]);
      for (std::size_t c = 0; c < columns; ++c) {
        y[row + c] = of_row[c] * gamma[c] + (beta.empty() ? 0 : beta[c]);
      }
    }
    return y;
  }

  struct Gradients {
    std::vector<double> x, gamma, beta;
  };
  Gradients backward(const std::vector<double>& x, const std::vector<double>& gamma,
                     const std::vector<double>& dy) const {
    const double n = static_cast<double>(columns);
    Gradients d{std::vector<double>(x.size()), std::vector<double>(columns),
                std::vector<double>(columns)};
    for (std::size_t row = 0; row < x.size(); row += columns) {
      const std::vector<double> y = normalized(&x[row]);
      double mean = 0, square = 0, mean_g = 0, mean_gy = 0;
      for (std::size_t c = 0; centered && c < columns; ++c) mean += x[row + c] / n;
      for (std::size_t c = 0; c < columns; ++c) {
        square += (x[row + c] - mean) * (x[row + c] - mean) / n;
        const double g = dy[row + c] * gamma[c];
        if (centered) mean_g += g / n;
        mean_gy += g * y[c] / n;
        d.gamma[c] += dy[row + c] * y[c];
        d.beta[c] += dy[row + c];
      }
      for (std::size_t c = 0; c < columns; ++c) {
        d.x[row + c] =
            (dy[row + c] * gamma[c] - mean_g - y[c] * mean_gy) / std::sqrt(square + epsilon);
      }
    }
    return d;
  }
};

}  // namespace dtrain::reference
