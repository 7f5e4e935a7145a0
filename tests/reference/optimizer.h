// Optimizers in plain double, one weight at a time, written from PyTorch's formulas.
#pragma once

#include <cmath>

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

}  // namespace dtrain::reference
