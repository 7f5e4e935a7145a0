// Stochastic gradient descent with momentum, as torch.optim.SGD.
#pragma once

#include "dtrain/core/optim/optimizer.h"

namespace dtrain {

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

// With g the gradient plus weight_decay * w, and the buffer b = g in the first step:
//   b = momentum * b + (1 - dampening) * g;  w -= lr * (nesterov ? g + momentum * b : b)
// Without momentum there is no state, and w -= lr * g.
class Sgd : public Optimizer {
 public:
  // Throws ConfigError if Nesterov's momentum has no momentum or is dampened.
  explicit Sgd(const SgdOptions& options);

  std::span<const std::string_view> state_names() const override;
  void step(std::span<float> weights, std::span<const float> gradients,
            std::span<const std::span<float>> state, std::span<const ParameterSegment> segments,
            const StepScalars& scalars, ThreadPool& pool) const override;

 private:
  SgdOptions options_;
};

}  // namespace dtrain
