// LAMB: Adam's direction, with a step in proportion to the norm of each parameter, for very large
// batches. You et al., "Large Batch Optimization for Deep Learning" (arXiv:1904.00962, version 3),
// with bias correction and without bounds on the ratio, as in NVIDIA's.
#pragma once

#include "dtrain/core/optim/optimizer.h"

namespace dtrain {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// For each parameter w, with g its gradient and t the step from 1:
//   m = m + (1 - beta1)(g - m);  v = beta2 * v + (1 - beta2) g^2
//   u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + eps) + weight_decay * w
//   w -= lr * ratio * u, where ratio = |w| / |u|, or 1 if either norm is 0
class Lamb : public Optimizer {
 public:
  // Throws ConfigError if a beta is not in [0, 1).
  explicit Lamb(const LambOptions& options);

  std::span<const std::string_view> state_names() const override;
  // A segment is a parameter: the ratio is of its norms. See Note [Block sums].
  bool per_parameter() const override { return true; }
  void step(std::span<float> weights, std::span<const float> gradients,
            std::span<const std::span<float>> state, std::span<const ParameterSegment> segments,
            const StepScalars& scalars, ThreadPool& pool) const override;

 private:
  LambOptions options_;
};

}  // namespace dtrain
