#include "dtrain/parallel/train/replica.h"

#include "dtrain/parallel/train/gather.h"

namespace dtrain {

std::vector<ParameterSegment> decay_segments(const ArenaLayout& layout, double weight_decay,
                                             bool decay_norm_and_bias) {
  std::vector<ParameterSegment> segments;
  const auto parameters = layout.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = *parameters[i];
    const std::int64_t end =
        i + 1 < parameters.size() ? parameters[i + 1]->offset : layout.weight_elements();
    const double decay = parameter.norm_or_bias && !decay_norm_and_bias ? 0 : weight_decay;
    // Padding behind a parameter stays zero under every optimizer, so segments run through it.
    if (!segments.empty() && segments.back().weight_decay == decay) {
      segments.back().size = end - segments.back().offset;
    } else {
      segments.push_back({parameter.offset, end - parameter.offset, decay});
    }
  }
  return segments;
}

Replica::Replica(const ArenaLayout& layout, const config::Optimizer& optimizer)
    : arena_(layout),
      optimizer_(make_optimizer(optimizer)),
      segments_(decay_segments(layout, optimizer.weight_decay(), optimizer.decay_norm_and_bias())) {
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

void Replica::copy_to(CheckpointSnapshot& snapshot) const {
  const ArenaLayout& layout = arena_.layout();
  snapshot.model.resize(layout.parameters().size() + layout.buffers().size());
  std::size_t next = 0;
  for (const Parameter* p : layout.parameters()) {
    snapshot.model[next++].assign(
        p->name, DType::f32, p->shape,
        std::as_bytes(arena_.weights().subspan(p->offset, p->elements())));
  }
  for (const Buffer* b : layout.buffers()) {
    snapshot.model[next++].assign(
        b->name, DType::f32, b->shape,
        std::as_bytes(arena_.buffers().subspan(b->offset, b->shape.elements())));
  }
  const auto names = optimizer_->state_names();
  snapshot.optimizer.resize(names.size() * layout.parameters().size());
  next = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const Parameter* p : layout.parameters()) {
      snapshot.optimizer[next++].assign(
          fmt::format("{}.{}", names[i], p->name), DType::f32, p->shape,
          std::as_bytes(state_[i].values().subspan(p->offset, p->elements())));
    }
  }
}

void Replica::load_weights(const std::filesystem::path& safetensors, bool strict) {
  std::vector<TensorTarget> targets;
  for (const Parameter* p : arena_.layout().parameters()) {
    targets.push_back({p->name, DType::f32, p->shape, std::as_writable_bytes(arena_.weight(*p))});
  }
  for (const Buffer* b : arena_.layout().buffers()) {
    targets.push_back({b->name, DType::f32, b->shape, std::as_writable_bytes(arena_.buffer(*b))});
  }
  load_tensors(safetensors, targets, strict);
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
}

}  // namespace dtrain
