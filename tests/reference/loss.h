// Losses in plain double, written from their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrain::reference {

struct CrossEntropy {
  std::size_t classes = 0;
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights;  // all 1 if empty

  double weight(std::size_t c) const { return class_weights.empty() ? 1 : class_weights[c]; }

  // log of the softmax of the row at x.
  std::vector<double> log_probabilities(const double* x) const {
    const double max = *std::max_element(x, x + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[c] - max);
    std::vector<double> q(classes);
    for (std::size_t c = 0; c < classes; ++c) q[c] = x[c] - max - std::log(sum);
    return q;
  }

  // What the target distribution of a row with target t gives to class c, times c's weight.
  double target_mass(std::size_t t, std::size_t c) const {
    const double smooth = label_smoothing / static_cast<double>(classes);
    return weight(c) * ((c == t ? 1 - label_smoothing : 0) + smooth);
  }

  double sum(const std::vector<double>& x, const std::vector<std::int64_t>& targets) const {
    double loss = 0;
    for (std::size_t n = 0; n < targets.size(); ++n) {
      if (targets[n] == ignore_index) continue;
      const std::vector<double> q = log_probabilities(&x[n * classes]);
      const auto t = static_cast<std::size_t>(targets[n]);
      for (std::size_t c = 0; c < classes; ++c) loss -= target_mass(t, c) * q[c];
    }
    return loss;
  }

  double divisor(const std::vector<std::int64_t>& targets) const {
    double result = 0;
    for (const std::int64_t t : targets) {
      if (t != ignore_index) result += weight(static_cast<std::size_t>(t));
    }
    return result;
  }

  std::vector<double> gradient(const std::vector<double>& x,
                               const std::vector<std::int64_t>& targets) const {
    std::vector<double> dx(x.size());
    for (std::size_t n = 0; n < targets.size(); ++n) {
      if (targets[n] == ignore_index) continue;
      const std::vector<double> q = log_probabilities(&x[n * classes]);
      const auto t = static_cast<std::size_t>(targets[n]);
      double total = 0;
      for (std::size_t c = 0; c < classes; ++c) total += target_mass(t, c);
      for (std::size_t c = 0; c < classes; ++c) {
        dx[n * classes + c] = total * std::exp(q[c]) - target_mass(t, c);
      }
    }
    return dx;
  }
};

inline double squared_error_sum(const std::vector<double>& x, const std::vector<double>& t) {
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) loss += (x[i] - t[i]) * (x[i] - t[i]);
  return loss;
}

inline double binary_cross_entropy_sum(const std::vector<double>& x, const std::vector<double>& t) {
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    // -t log s(x) - (1 - t) log s(-x), with log s(x) = -log(1 + exp(-x)) taken where it is small.
    const auto log_sigmoid = [](double v) {
      return std::min(v, 0.0) - std::log1p(std::exp(-std::abs(v)));
    };
    loss -= t[i] * log_sigmoid(x[i]) + (1 - t[i]) * log_sigmoid(-x[i]);
  }
  return loss;
}

inline double binary_cross_entropy_slope(double x, double t) {
  return 1 / (1 + std::exp(-x)) - t;
}

}  // namespace dtrain::reference
