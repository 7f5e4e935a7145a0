// The global norm of the gradients, and clipping by it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/base/thread_pool.h"

namespace dtrain {

// A parameter's elements in the arena, without padding.
struct ParameterRange {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  int group = 0;  // of those that SquaredNorms tells apart
};

// Sums of squares: of all parameters, and of those of each group. Each is added in the order of the
// parameters, so the groups need not add up to `all` in the last bit.
struct SquaredNorms {
  double all = 0;
  std::vector<double> groups;
};

// Sum of the squares of all parameters' gradients, in blocks: see Note [Block sums] in
// core/ops/reduce.h. The bits do not depend on the threads. Of sums that are still to be divided
// (StepScalars), divide the norm alike.
double squared_norm(std::span<const float> gradients, std::span<const ParameterRange> parameters,
                    ThreadPool& pool);
// The same, also by group: 0 <= group < groups.
SquaredNorms squared_norms(std::span<const float> gradients,
                           std::span<const ParameterRange> parameters, int groups,
                           ThreadPool& pool);

// What gradients of this norm are multiplied by so that it does not exceed max_norm: as in
// torch.nn.utils.clip_grad_norm_, max_norm / (norm + 1e-6), at most 1. 1 if max_norm is 0 (no
// clipping); NaN if the norm is.
float clip_coefficient(double norm, double max_norm);

}  // namespace dtrain
