// Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW.
#pragma once

#include "dtrain/core/optim/optimizer.h"

namespace dtrain {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled_decay = false;  // AdamW: w *= 1 - lr * weight_decay before the update
};

// With g the gradient (plus weight_decay * w unless the decay is decoupled), t the step from 1:
//   m = m + (1 - beta1)(g - m);  v = beta2 * v + (1 - beta2) g^2
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
class Adam : public Optimizer {
 public:
  // Throws ConfigError if a beta is not in [0, 1).
  explicit Adam(const AdamOptions& options);

  std::span<const std::string_view> state_names() const override;
  void step(std::span<float> weights, std::span<const float> gradients,
            std::span<const std::span<float>> state, std::span<const ParameterSegment> segments,
            const StepScalars& scalars, ThreadPool& pool) const override;

 private:
  AdamOptions options_;
};

}  // namespace dtrain
