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

// Elements of the arena that decay alike: one or more parameters in a row, or exactly one where the
// optimizer is per_parameter().
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

  // Whether each segment must be one parameter without padding, because what happens to an element
  // depends on the whole parameter. Otherwise it depends on that element alone, and the bits do not
  // depend on how segments are cut.
  virtual bool per_parameter() const { return false; }

  // state: one block per name. Gradients and state are at least as long as weights. Elements
  // outside the segments are left alone. The bits do not depend on the threads.
  virtual void step(std::span<float> weights, std::span<const float> gradients,
                    std::span<const std::span<float>> state,
                    std::span<const ParameterSegment> segments, const StepScalars& scalars,
                    ThreadPool& pool) const = 0;
};

// Throws ConfigError for options that do not go together.
std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options);

// The weight decay of parameters that decay: as given, else 0.01 for adamw and lamb, 0 otherwise.
double default_weight_decay(const config::Optimizer& options);

}  // namespace dtrain
