// What the saving processes of these tests save.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {

inline constexpr std::int64_t saved_floats =
    1'000'000;  // 4 MB of model, as much of optimizer state

// Fills the snapshot with what a run would have at `step`: the step, in every element.
inline void fill_snapshot(CheckpointSnapshot& snapshot, std::int64_t step) {
  const std::vector<float> values(saved_floats, static_cast<float>(step));
  snapshot.model.resize(1);
  snapshot.model[0].assign("w", DType::f32, Shape{saved_floats}, std::as_bytes(std::span(values)));
  snapshot.optimizer.resize(1);
  snapshot.optimizer[0].assign("w.momentum", DType::f32, Shape{saved_floats},
                               std::as_bytes(std::span(values)));
  snapshot.state.set_step(step);
  snapshot.state.set_batch(step);
  snapshot.state.set_epoch(0);
  snapshot.state.set_batch_in_epoch(step);
  snapshot.state.set_samples_seen(step);
}

}  // namespace dtrain
