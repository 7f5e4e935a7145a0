#include "dtrain/parallel/train/gradient_step.h"

#include <algorithm>

#include "dtrain/core/base/error_message.h"

namespace dtrain {

MetricSums metrics_of(const LossReport& report, std::int64_t samples) {
  return {.loss = report.sums.loss,
          .loss_weight = report.sums.weight,
          .samples = static_cast<double>(samples),
          .correct = static_cast<double>(report.top_k.top1),
          .correct5 = static_cast<double>(report.top_k.top5),
          .targets = static_cast<double>(report.top_k.targets)};
}

// One virtual rank in one lane.
struct GradientStep::LaneTask {
  OpContext& context;
  const ParameterArena& weights;
  const StepPosition& position;
  std::span<const Fault> faults;
  GradientReport& report;
  bool want_ids;
  int wave;
  int lane;
  std::int64_t virtual_rank;
};

GradientStep::GradientStep(const Module& model, const Loss& loss, const BatchPlan& plan,
                           Loader& loader, Reducer& reducer, Lanes& lanes, RandomKey key,
                           float seed_gradient, SyncMeeting* meeting, FieldSpec input)
    : model_(model),
      loss_(loss),
      plan_(plan),
      loader_(loader),
      reducer_(reducer),
      lanes_(lanes),
      key_(key),
      seed_gradient_(seed_gradient),
      meeting_(meeting),
      input_(input) {}

GradientReport GradientStep::run(const ParameterArena& weights, const StepPosition& position,
                                 std::span<const Fault> faults, bool want_ids) {
  GradientReport report;
  report.metrics.resize(reducer_.range().size());
  report.used.resize(weights.layout().parameters().size());
  reducer_.begin_step();
  // Weights are used once per lane otherwise, and copies of them would only cost memory.
  const bool cache_weights = plan_.accumulate > 1 || reducer_.waves() > 1;
  if (cache_weights) lanes_.begin_step_with_cached_weights();
  for (int wave = 0; wave < reducer_.waves(); ++wave) {
    const VirtualRange range = reducer_.wave_range(wave);
    lanes_.run(static_cast<int>(range.size()), [&](int lane, OpContext& context) {
      run_lane(
          {context, weights, position, faults, report, want_ids, wave, lane, range.first + lane});
    });
    reducer_.end_wave(wave, lanes_.pool());
  }
  if (cache_weights) lanes_.end_step_with_cached_weights();
  reducer_.wait();
  return report;
}

void GradientStep::run_lane(const LaneTask& task) {
  const auto parameters = task.weights.layout().parameters();
  const bool last_wave = reducer_.last_wave(task.wave);
  std::vector<bool> told(parameters.size());
  const auto finished = [&](int index) {
    // The parameter finished last takes an injected fault: its gradient has not been sent yet.
    if (task.lane == 0 && !told[index] && index + 1 == static_cast<int>(parameters.size())) {
      inject_into_gradients(task.faults, task.position.step,
                            reducer_.slot(task.wave, 0)
                                .subspan(parameters[index]->offset, parameters[index]->elements()));
    }
    told[index] = true;
    reducer_.finished(index);
  };
  try {
    if (task.wave == 0 && task.lane == 0) inject_before_step(task.faults, task.position.step);
    run_virtual_rank(task, last_wave ? std::function<void(int)>(finished) : nullptr);
  } catch (...) {
    latch(task, std::current_exception());
  }
  if (!last_wave) return;
  for (std::size_t index = 0; index < told.size(); ++index) {
    if (!told[index]) finished(static_cast<int>(index));
  }
}

void GradientStep::latch(const LaneTask& task, const std::exception_ptr& error) {
  bool consequence = false;
  try {
    std::rethrow_exception(error);
  } catch (const MeetingEnded&) {
    consequence = true;
  } catch (...) {
    // A cause.
  }
  {
    std::lock_guard lock(mutex_);
    // A cause goes before consequences that were faster.
    if (!task.report.error || (task.report.consequence && !consequence)) {
      task.report.error = error;
      task.report.consequence = consequence;
    }
  }
  if (meeting_ != nullptr && !consequence) meeting_->end(message_of(error));
}

std::int64_t GradientStep::micro_batches(const StepPosition& at, std::int64_t v) const {
  std::int64_t count = 0;
  while (count < plan_.accumulate && plan_.micro_batch(at.batch_in_epoch, v, count).size() > 0) {
    ++count;
  }
  return count;
}

void GradientStep::run_virtual_rank(const LaneTask& task,
                                    const std::function<void(int)>& finished) {
  const StepPosition& at = task.position;
  const std::span<float> gradients = reducer_.slot(task.wave, task.lane);
  MetricSums metrics;
  bool accumulate = reducer_.accumulates(task.wave);
  const std::int64_t mine = micro_batches(at, task.virtual_rank);
  // The first slot is the fullest.
  const std::int64_t rounds = meeting_ == nullptr ? mine : micro_batches(at, 0);
  for (std::int64_t m = 0; m < rounds; ++m) {
    MicroBatch batch;
    if (m < mine) batch = loader_.next(at.epoch, at.batch_in_epoch, task.virtual_rank, m);
    if (batch.size() == 0) {  // or every sample of it was skipped as bad
      if (meeting_ == nullptr) continue;
      std::vector<std::int64_t> sizes{0};
      sizes.insert(sizes.end(), input_.shape.sizes().begin(), input_.shape.sizes().end());
      batch.inputs =
          Tensor::empty(Shape(sizes), input_.dtype, task.context.allocator(), "no input");
    }
    Pass pass(task.context,
              {.weights = task.weights.weights(),
               .buffers = task.weights.buffers(),
               .gradients = gradients,
               .parameters = task.weights.layout().parameters()},
              {.training = true,
               .accumulate = accumulate,
               .key = key_,
               .batch = at.batch,
               .positions = batch.positions,
               .finished = m + 1 == rounds ? finished : nullptr,
               .sync = meeting_ == nullptr ? nullptr : &meeting_->lane(task.lane)});
    Value outputs = model_.forward(pass, pass.input(batch.inputs));
    if (batch.size() == 0) {
      pass.backward(outputs, Tensor::empty(outputs.shape(), DType::f32, task.context.allocator(),
                                           "no output gradient"));
      accumulate = true;
      continue;
    }
    metrics += metrics_of(loss_.forward(task.context, outputs.tensor, batch.targets), batch.size());
    Tensor gradient =
        loss_.backward(task.context, std::move(outputs.tensor), batch.targets, seed_gradient_);
    pass.backward(outputs, std::move(gradient));
    accumulate = true;
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < task.report.used.size(); ++i) {
      if (pass.used(static_cast<int>(i))) task.report.used[i] = true;
    }
    if (task.want_ids) {
      for (std::int64_t n = 0; n < batch.size(); ++n) {
        task.report.ids.push_back({batch.positions[n], batch.ids[n]});
      }
    }
  }
  if (!accumulate) std::ranges::fill(gradients, 0.0F);
  task.report.metrics[task.virtual_rank - reducer_.range().first] = metrics;
}

}  // namespace dtrain
