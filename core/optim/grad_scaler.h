// Dynamic loss scaling, as torch.amp.GradScaler: gradients of low precision are kept in range by a
// factor on the loss, which halves when a step overflows and doubles after many that did not.
//
// A pure state machine: whether a step overflowed is decided by all ranks together, so all have
// the same scale. Without mixed precision the scale stays 1.
#pragma once

#include <cstdint>

namespace dtrain {

struct GradScalerOptions {
  bool enabled = true;
  float initial_scale = 65536;
  float growth_factor = 2;
  float backoff_factor = 0.5F;
  std::int64_t growth_interval = 2000;  // steps without overflow until the scale grows
};

// What a checkpoint keeps.
struct GradScalerState {
  float scale = 1;
  std::int64_t growth_tracker = 0;  // steps without overflow since the scale last changed
  friend bool operator==(const GradScalerState&, const GradScalerState&) = default;
};

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options);

  float scale() const { return state_.scale; }

  // After each step, applied or not; non_finite: some rank's gradient was NaN or infinite.
  void update(bool non_finite);

  GradScalerState state() const { return state_; }
  // Throws InternalError if the scale is not a positive number.
  void restore(const GradScalerState& state);

 private:
  GradScalerOptions options_;
  GradScalerState state_;
};

}  // namespace dtrain
