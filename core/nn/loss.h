// What a model is trained for: a sum over valid targets, its gradient, and the metrics that go
// with it. See core/ops/loss.h for the formulas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtrain/core/ops/loss.h"

namespace dtrain {

// One micro-batch's figures.
struct LossReport {
  ops::LossSums sums;
  ops::TopK top_k;  // of label targets
};

class Loss {
 public:
  virtual ~Loss() = default;
  // Targets are class labels (i64), not numbers (f32).
  virtual bool wants_labels() const = 0;
  virtual LossReport forward(OpContext& context, const Tensor& outputs,
                             const Tensor& targets) const = 0;
  // Gradient of seed * loss, of the outputs' shape. It may be written over outputs that nobody else
  // holds: who needs them no more moves them here.
  virtual Tensor backward(OpContext& context, Tensor outputs, const Tensor& targets,
                          float seed) const = 0;
};

struct LossOptions {
  std::string name = "cross_entropy";  // or mse, bce
  float label_smoothing = 0;
  std::int64_t ignore_index = -100;
  std::vector<float> class_weights;  // [classes], or empty
};

// Throws ConfigError for an unknown name.
std::unique_ptr<Loss> make_loss(const LossOptions& options);

}  // namespace dtrain
