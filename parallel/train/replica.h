// The values that training changes: weights, buffers, optimizer state and averages of one rank; and
// their way to and from checkpoints and other ranks.
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
  // decay_norm_and_bias: false leaves norm weights and biases out of weight decay. ema_decay: 0 for
  // no average.
  Replica(const ArenaLayout& layout, const config::Optimizer& optimizer, double ema_decay = 0);

  ParameterArena& arena() { return arena_; }
  const ParameterArena& arena() const { return arena_; }

  // What is evaluated: the averages of weights and buffers, or these themselves.
  const ParameterArena& evaluated() const { return average_ ? *average_ : arena_; }
  bool averages() const { return average_ != nullptr; }

  // One update from summed gradients; see StepScalars.
  void update(std::span<const float> gradients, const StepScalars& scalars, ThreadPool& pool);

  // Moves the averages towards weights and buffers, after all else of a step; the first update of a
  // run sets them, as in torch.optim.swa_utils.AveragedModel. Nothing where there are none.
  void update_averages(bool first, ThreadPool& pool);

  // Copies into a snapshot; names are those of parameters and buffers, and "exp_avg.fc1.weight" for
  // optimizer state.
  // With `borrow` the snapshot refers to the values, which then must not change until it is saved.
  void copy_to(CheckpointSnapshot& snapshot, bool borrow = false) const;
  // Weights and buffers from a safetensors file; see load_tensors.
  void load_weights(const std::filesystem::path& safetensors, bool strict);
  void load_optimizer(const std::filesystem::path& safetensors);
  void load_averages(const std::filesystem::path& safetensors);
  void start_averages();  // from weights and buffers as they are
  // Rank 0's values to all ranks.
  void broadcast(Communicator& comm);

 private:
  ParameterArena arena_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<ParameterSegment> segments_;
  std::vector<FloatBlock> state_;  // one block per name of optimizer_->state_names()
  double ema_decay_;
  std::unique_ptr<ParameterArena> average_;  // null: none
};

// Runs of parameters with equal weight decay, merged; or each by itself, without padding.
std::vector<ParameterSegment> decay_segments(const ArenaLayout& layout, double weight_decay,
                                             bool decay_norm_and_bias, bool merge = true);

}  // namespace dtrain
