// An optimizer together with the blocks it works on.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dtrain/core/optim/optimizer.h"

namespace dtrain {

struct Replica {
  Replica(const config::Optimizer& options, std::vector<float> start, int threads = 1)
      : optimizer(make_optimizer(options)), weights(std::move(start)), pool(threads) {
    state.resize(optimizer->state_names().size(), std::vector<float>(weights.size()));
  }

  void step(const std::vector<float>& gradients, const StepScalars& scalars,
            std::span<const ParameterSegment> segments) {
    std::vector<std::span<float>> blocks(state.begin(), state.end());
    optimizer->step(weights, gradients, blocks, segments, scalars, pool);
  }

  // All weights decay alike.
  void step(const std::vector<float>& gradients, const StepScalars& scalars, double decay = 0) {
    const std::vector<ParameterSegment> all = {
        {0, static_cast<std::int64_t>(weights.size()), decay}};
    step(gradients, scalars, all);
  }

  std::unique_ptr<Optimizer> optimizer;
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
  ThreadPool pool;
};

inline std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

}  // namespace dtrain
