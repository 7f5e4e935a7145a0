#include "dtrain/parallel/train/replica.h"

#include <algorithm>
#include <utility>

#include "dtrain/core/optim/weight_average.h"
#include "dtrain/parallel/train/gather.h"

namespace dtrain {

namespace {

// OwnedTensor::assign, or borrow.
using PutTensor = void (CheckpointSnapshot::OwnedTensor::*)(std::string_view, DType, const Shape&,
                                                            std::span<const std::byte>);

// Weights and buffers by name, into tensors that may hold an earlier copy.
void copy_values(const ParameterArena& arena, PutTensor put,
                 std::vector<CheckpointSnapshot::OwnedTensor>& tensors) {
  const ArenaLayout& layout = arena.layout();
  tensors.resize(layout.parameters().size() + layout.buffers().size());
  std::size_t next = 0;
  for (const Parameter* p : layout.parameters()) {
    (tensors[next++].*put)(p->name, DType::f32, p->shape,
                           std::as_bytes(arena.weights().subspan(p->offset, p->elements())));
  }
  for (const Buffer* b : layout.buffers()) {
    (tensors[next++].*put)(b->name, DType::f32, b->shape,
                           std::as_bytes(arena.buffers().subspan(b->offset, b->shape.elements())));
  }
}

std::vector<TensorTarget> targets_in(ParameterArena& arena) {
  std::vector<TensorTarget> targets;
  for (const Parameter* p : arena.layout().parameters()) {
    targets.push_back({p->name, DType::f32, p->shape, std::as_writable_bytes(arena.weight(*p))});
  }
  for (const Buffer* b : arena.layout().buffers()) {
    targets.push_back({b->name, DType::f32, b->shape, std::as_writable_bytes(arena.buffer(*b))});
  }
  return targets;
}

}  // namespace

std::vector<ParameterSegment> decay_segments(const ArenaLayout& layout, double weight_decay,
                                             bool decay_norm_and_bias, bool merge) {
  std::vector<ParameterSegment> segments;
  const auto parameters = layout.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = *parameters[i];
    const std::int64_t end =
        i + 1 < parameters.size() ? parameters[i + 1]->offset : layout.weight_elements();
    const double decay = parameter.norm_or_bias && !decay_norm_and_bias ? 0 : weight_decay;
    if (!merge) {
      segments.push_back({parameter.offset, parameter.elements(), decay});
      continue;
    }
    // Padding behind a parameter stays zero under every optimizer, so segments run through it.
    if (!segments.empty() && segments.back().weight_decay == decay) {
      segments.back().size = end - segments.back().offset;
    } else {
      segments.push_back({parameter.offset, end - parameter.offset, decay});
    }
  }
  return segments;
}

Replica::Replica(const ArenaLayout& layout, const config::Optimizer& optimizer, double ema_decay)
    : arena_(layout),
      optimizer_(make_optimizer(optimizer)),
      segments_(decay_segments(layout, optimizer.weight_decay(), optimizer.decay_norm_and_bias(),
                               !optimizer_->per_parameter())),
      ema_decay_(ema_decay),
      average_(ema_decay > 0 ? std::make_unique<ParameterArena>(layout) : nullptr) {
  for (std::size_t i = 0; i < optimizer_->state_names().size(); ++i) {
    state_.emplace_back(layout.weight_elements());
  }
}

void Replica::update(std::span<const float> gradients, const StepScalars& scalars,
                     ThreadPool& pool) {
  std::vector<std::span<float>> state;
  for (FloatBlock& block : state_) state.push_back(block.values());
  optimizer_->step(arena_.weights(), gradients.first(arena_.weights().size()), state, segments_,
                   scalars, pool);
}

void Replica::update_averages(bool first, ThreadPool& pool) {
  if (!average_) return;
  if (first) {
    start_averages();
    return;
  }
  update_average(average_->weights(), std::as_const(arena_).weights(), ema_decay_, pool);
  update_average(average_->buffers(), std::as_const(arena_).buffers(), ema_decay_, pool);
}

void Replica::start_averages() {
  if (!average_) return;
  std::ranges::copy(arena_.weights(), average_->weights().begin());
  std::ranges::copy(arena_.buffers(), average_->buffers().begin());
}

void Replica::copy_to(CheckpointSnapshot& snapshot, bool borrow) const {
  const PutTensor put =
      borrow ? &CheckpointSnapshot::OwnedTensor::borrow : &CheckpointSnapshot::OwnedTensor::assign;
  const ArenaLayout& layout = arena_.layout();
  copy_values(arena_, put, snapshot.model);
  if (average_) copy_values(*average_, put, snapshot.average);
  const auto names = optimizer_->state_names();
  snapshot.optimizer.resize(names.size() * layout.parameters().size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const Parameter* p : layout.parameters()) {
      (snapshot.optimizer[next++].*put)(
          fmt::format("{}.{}", names[i], p->name), DType::f32, p->shape,
          std::as_bytes(state_[i].values().subspan(p->offset, p->elements())));
    }
  }
}

void Replica::load_weights(const std::filesystem::path& safetensors, bool strict) {
  load_tensors(safetensors, targets_in(arena_), strict,
               [&](std::string_view name) { return arena_.layout().name_in_model(name); });
}

void Replica::load_averages(const std::filesystem::path& safetensors) {
  if (average_) load_tensors(safetensors, targets_in(*average_), true);
}

void Replica::load_optimizer(const std::filesystem::path& safetensors) {
  if (state_.empty()) return;
  std::vector<TensorTarget> targets;
  const auto names = optimizer_->state_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const Parameter* p : arena_.layout().parameters()) {
      targets.push_back(
          {fmt::format("{}.{}", names[i], p->name), DType::f32, p->shape,
           std::as_writable_bytes(state_[i].values().subspan(p->offset, p->elements()))});
    }
  }
  load_tensors(safetensors, targets, true);
}

void Replica::broadcast(Communicator& comm) {
  broadcast_bytes(comm, std::as_writable_bytes(arena_.weights()));
  broadcast_bytes(comm, std::as_writable_bytes(arena_.buffers()));
  for (FloatBlock& block : state_) {
    broadcast_bytes(comm, std::as_writable_bytes(block.values()));
  }
  if (!average_) return;
  broadcast_bytes(comm, std::as_writable_bytes(average_->weights()));
  broadcast_bytes(comm, std::as_writable_bytes(average_->buffers()));
}

}  // namespace dtrain
