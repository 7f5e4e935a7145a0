// The values that training changes: weights, buffers and optimizer state of one rank; and their
// way to and from checkpoints and other ranks.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dtrain/core/base/thread_pool.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/core/optim/optimizer.h"
#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

class Replica {
 public:
  // decay_norm_and_bias: false leaves norm weights and biases out of weight decay.
  Replica(const ArenaLayout& layout, const config::Optimizer& optimizer);

  ParameterArena& arena() { return arena_; }
  const ParameterArena& arena() const { return arena_; }

  // One update from summed gradients; see StepScalars.
  void update(std::span<const float> gradients, const StepScalars& scalars, ThreadPool& pool);

  // Copies into a snapshot; names are those of parameters and buffers, and "exp_avg.fc1.weight" for
  // optimizer state.
  void copy_to(CheckpointSnapshot& snapshot) const;
  // Weights and buffers from a safetensors file; see load_tensors.
  void load_weights(const std::filesystem::path& safetensors, bool strict);
  void load_optimizer(const std::filesystem::path& safetensors);
  // Rank 0's values to all ranks.
  void broadcast(Communicator& comm);

 private:
  ParameterArena arena_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<ParameterSegment> segments_;
  std::vector<FloatBlock> state_;  // one block per name of optimizer_->state_names()
};

// Runs of parameters with equal weight decay, merged.
std::vector<ParameterSegment> decay_segments(const ArenaLayout& layout, double weight_decay,
                                             bool decay_norm_and_bias);

}  // namespace dtrain
