// Which checkpoints of a run may go: a pure function of what the folder holds, so that a crash
// before the removal is made good by the next save.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dtrain {

struct RetainedStep {
  std::int64_t step = 0;
  std::optional<double> validation_loss;
};

// Steps to remove, ascending, out of `own` (any order). Kept are the `keep_last` highest steps up
// to `saved`, the `keep_best` lowest validation losses (of equal ones the earlier step), `saved`
// itself, and every step above it: a run that went back to an earlier checkpoint has those ahead.
std::vector<std::int64_t> steps_to_remove(std::span<const RetainedStep> own, std::int64_t saved,
                                          int keep_last, int keep_best);

}  // namespace dtrain
