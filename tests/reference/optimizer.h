// Optimizers in plain double, one weight at a time, written from PyTorch's formulas.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace dtrain::reference {

struct Sgd {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  double buffer = 0;
  int steps = 0;

  double update(double w, double g, double lr) {
    g += weight_decay * w;
    if (momentum != 0) {
      buffer = steps == 0 ? g : momentum * buffer + (1 - dampening) * g;
      g = nesterov ? g + momentum * buffer : buffer;
    }
    ++steps;
    return w - lr * g;
  }
};

struct Adam {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
  double mean = 0, square = 0;
  int steps = 0;

  double update(double w, double g, double lr) {
    if (decoupled) {
      w *= 1 - lr * weight_decay;
    } else {
      g += weight_decay * w;
    }
    ++steps;
    mean = beta1 * mean + (1 - beta1) * g;
    square = beta2 * square + (1 - beta2) * g * g;
    const double corrected_mean = mean / (1 - std::pow(beta1, steps));
    const double corrected_square = square / (1 - std::pow(beta2, steps));
    return w - lr * corrected_mean / (std::sqrt(corrected_square) + eps);
  }
};

// One parameter, all its weights together.
struct Lamb {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::vector<double> mean = {}, square = {};
  int steps = 0;

  void update(std::vector<double>& w, const std::vector<double>& g, double lr) {
    mean.resize(w.size());
    square.resize(w.size());
    ++steps;
    std::vector<double> u(w.size());
    double weights = 0, directions = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      mean[i] = beta1 * mean[i] + (1 - beta1) * g[i];
      square[i] = beta2 * square[i] + (1 - beta2) * g[i] * g[i];
      const double corrected_mean = mean[i] / (1 - std::pow(beta1, steps));
      const double corrected_square = square[i] / (1 - std::pow(beta2, steps));
      u[i] = corrected_mean / (std::sqrt(corrected_square) + eps) + weight_decay * w[i];
      weights += w[i] * w[i];
      directions += u[i] * u[i];
    }
    const double ratio =
        weights > 0 && directions > 0 ? std::sqrt(weights) / std::sqrt(directions) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr * ratio * u[i];
  }
};

}  // namespace dtrain::reference
