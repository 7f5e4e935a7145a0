// Optimizers: one sweep over the arena per step, reading gradients and updating weights and state.
//
// They hold options only. State stands in blocks as large as the weights, one per name, which the
// caller owns, zeroed at first, and saves; so a resumed run has the same bits.
//
//   std::unique_ptr<Optimizer> optimizer = make_optimizer(config.optimizer());
//   optimizer->step(weights, gradients, state, segments, scalars, pool);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dtrain/core/base/thread_pool.h"
#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/optim/step_scalars.h"

namespace dtrain {

// Elements of the arena, one or more parameters in a row, that decay alike.
struct ParameterSegment {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  double weight_decay = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Named as in PyTorch: "momentum_buffer"; "exp_avg", "exp_avg_sq".
  virtual std::span<const std::string_view> state_names() const = 0;

  // state: one block per name. Gradients and state are at least as long as weights. Elements
  // outside the segments are left alone. Every element's result depends on that element alone,
  // so the bits depend neither on the segments' cut nor on the threads.
  virtual void step(std::span<float> weights, std::span<const float> gradients,
                    std::span<const std::span<float>> state,
                    std::span<const ParameterSegment> segments, const StepScalars& scalars,
                    ThreadPool& pool) const = 0;
};

// Throws ConfigError for options that do not go together.
std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options);

// The weight decay of parameters that decay: as given, else 0.01 for adamw and 0 otherwise.
double default_weight_decay(const config::Optimizer& options);

}  // namespace dtrain
