// Descriptions of what a model learns and keeps: parameters, buffers, running statistics, and the
// places that draw random numbers. A description holds no values: those stand in arenas, at the
// offsets that ParameterArena's layout assigned. So one model serves many passes at once.
#pragma once

#include <cstdint>
#include <string>

#include "dtrain/core/tensor/shape.h"

namespace dtrain {

// How a parameter is filled at first; named as in torch.nn.init.
enum class InitScheme : std::uint8_t {
  zeros,
  ones,
  uniform_fan_in,  // U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default of linear and conv
  kaiming_uniform,
  kaiming_normal,
  kaiming_normal_fan_out,
  xavier_uniform,
  xavier_normal,
  normal  // of mean 0 and the parameter's `deviation`
};

struct Parameter {
  std::string name;  // full, "conv1.weight"
  Shape shape;
  InitScheme init = InitScheme::uniform_fan_in;
  std::int64_t fan_in = 0;    // of a bias too: that of its layer
  float deviation = 0.02F;    // of InitScheme::normal
  bool norm_or_bias = false;  // left out of weight decay under `decay_norm_and_bias: false`
  int index = -1;             // in arena order
  std::int64_t offset = -1;   // elements from the start of the arena
  std::int64_t elements() const { return shape.elements(); }
};

// State that is not learned: running mean and variance.
struct Buffer {
  std::string name;
  Shape shape;
  float initial = 0;
  std::int64_t offset = -1;  // elements from the start of the buffer block
};

// Note [Running statistics]: a pass never changes a buffer. It adds (count, count * mean,
// count * variance) per channel to extra elements at the end of its gradient arena; they go through
// the same sum tree as the gradients, and the step that commits updates the buffers once from the
// pooled values. The variance is the unbiased one of each micro-batch, as PyTorch keeps it.
struct RunningStatistics {
  Buffer* mean = nullptr;
  Buffer* variance = nullptr;
  std::int64_t channels = 0;
  float momentum = 0.1F;
  bool synchronized = false;      // over the virtual ranks: passes meet at this layer
  std::int64_t sums_offset = -1;  // elements from the start of the gradient arena:
                                  // count, then [C] count * mean, then [C] count * variance
};

// A layer that draws random numbers (dropout).
struct RandomSite {
  int index = -1;
};

}  // namespace dtrain
