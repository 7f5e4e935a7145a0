#include "dtrain/core/optim/grad_scaler.h"

#include <cmath>

#include "dtrain/core/base/error.h"

namespace dtrain {

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  state_.scale = options.enabled ? options.initial_scale : 1.0F;
}

void GradScaler::update(bool non_finite) {
  if (!options_.enabled) return;
  if (non_finite) {
    state_.scale *= options_.backoff_factor;
    state_.growth_tracker = 0;
    return;
  }
  if (++state_.growth_tracker < options_.growth_interval) return;
  const float grown = state_.scale * options_.growth_factor;
  if (std::isfinite(grown)) state_.scale = grown;
  state_.growth_tracker = 0;
}

void GradScaler::restore(const GradScalerState& state) {
  DTRAIN_CHECK(std::isfinite(state.scale) && state.scale > 0 && state.growth_tracker >= 0,
               "loss scale {} after {} steps", state.scale, state.growth_tracker);
  if (options_.enabled) state_ = state;
}

}  // namespace dtrain
