#include "dtrain/core/autograd/pass.h"

#include <algorithm>

namespace dtrain {

Pass::Pass(OpContext& context, const PassMemory& memory, PassOptions options)
    : context_(context),
      memory_(memory),
      options_(std::move(options)),
      uses_(memory.parameters.size()),
      contributions_(memory.parameters.size()),
      finished_(memory.parameters.size()) {
  // Statistic sums are added to, never written: they start at zero with the first micro-batch.
  if (options_.training && !options_.accumulate && !memory_.gradients.empty()) {
    std::ranges::fill(memory_.gradients.subspan(memory_.weights.size()), 0.0F);
  }
}

Tensor Pass::weight(const Parameter& parameter) {
  DTRAIN_CHECK(parameter.index >= 0 &&
                   static_cast<std::size_t>(parameter.index) < memory_.parameters.size() &&
                   memory_.parameters[parameter.index] == &parameter,
               "parameter '{}' does not belong to the model of this pass", parameter.name);
  ++uses_[parameter.index];
  // Tensors do not carry constness; operators never write to their inputs.
  return Tensor::wrap(const_cast<float*>(memory_.weights.data()) + parameter.offset,
                      parameter.shape, DType::f32);
}

Tensor Pass::buffer(const Buffer& buffer) const {
  return Tensor::wrap(const_cast<float*>(memory_.buffers.data()) + buffer.offset, buffer.shape,
                      DType::f32);
}

Tensor Pass::gradient_view(const Parameter& parameter) const {
  return Tensor::wrap(memory_.gradients.data() + parameter.offset, parameter.shape, DType::f32);
}

Value Pass::record(Tensor output, Backward backward, std::shared_ptr<const Value::Again> again) {
  if (!options_.training) return input(std::move(output));
  if (output.shape().rank() > 0 && !again)
    recorded_row_elements_ += output.shape().elements_per_row();
  tape_.push_back({std::move(backward), output.shape(), output.layout(), Tensor()});
  return {.tensor = std::move(output),
          .entry = static_cast<int>(tape_.size()) - 1,
          .again = std::move(again)};
}

void Pass::add_gradient(int entry, Tensor gradient) {
  if (entry < 0) return;
  DTRAIN_CHECK(gradient.shape() == tape_[entry].shape,
               "gradient of shape {} for a value of shape {}", to_string(gradient.shape()),
               to_string(tape_[entry].shape));
  gradient = ops::to_layout(context_, gradient, tape_[entry].layout);
  Tensor& sum = tape_[entry].gradient;
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  // Two inputs of one operation may have been given the same tensor: that one is not added to.
  if (sum.shared()) {
    sum = ops::add(context_, sum, gradient);
  } else {
    ops::add_in_place(context_, sum, gradient);
  }
}

Tensor Pass::take_gradient(int entry) {
  if (entry < 0 || tape_[entry].gradient.shared()) return {};
  return std::exchange(tape_[entry].gradient, Tensor());
}

void Pass::contributed(const Parameter& parameter) {
  DTRAIN_CHECK(uses_[parameter.index] > 0, "{}: more gradients than uses", parameter.name);
  ++contributions_[parameter.index];
  if (--uses_[parameter.index] == 0) finish(parameter.index);
}

void Pass::finish(int parameter) {
  DTRAIN_CHECK(!finished_[parameter], "{}: finished twice", memory_.parameters[parameter]->name);
  finished_[parameter] = true;
  if (options_.finished) options_.finished(parameter);
}

void Pass::add_statistics(const RunningStatistics& statistics, std::int64_t count,
                          std::int64_t pooled, const Tensor& mean, const Tensor& variance) {
  if (count == 0) return;
  float* const sums = memory_.gradients.data() + statistics.sums_offset;
  const float n = static_cast<float>(count);
  // A single value has no unbiased variance; layers refuse it before they come here.
  const float all = static_cast<float>(pooled);
  const float unbias = all / (all - 1);
  sums[0] += n;
  for (std::int64_t c = 0; c < statistics.channels; ++c) {
    sums[1 + c] += n * mean.data<float>()[c];
    sums[1 + statistics.channels + c] += n * (variance.data<float>()[c] * unbias);
  }
}

RandomKey Pass::random_key(const RandomSite& site) {
  DTRAIN_CHECK(site.index >= 0, "a random site of a model without an arena layout");
  if (calls_.size() <= static_cast<std::size_t>(site.index)) calls_.resize(site.index + 1);
  const int call = calls_[site.index]++;
  return options_.key.fork(RandomPurpose::dropout, site.index)
      .fork(static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(options_.batch));
}

void Pass::backward(const Value& output, Tensor gradient) {
  DTRAIN_CHECK(!std::exchange(ran_backward_, true), "a second backward in one pass");
  DTRAIN_CHECK(output.needs_gradient(), "backward from a value that depends on no operation");
  add_gradient(output.entry, std::move(gradient));
  while (!tape_.empty()) {
    // Taken off the tape first, so that what it holds is freed as soon as it has run.
    const Entry entry = std::move(tape_.back());
    tape_.pop_back();
    if (entry.gradient.defined()) entry.backward(*this, entry.gradient);
  }
  for (const Parameter* parameter : memory_.parameters) {
    if (finished_[parameter->index]) continue;
    if (contributions_[parameter->index] == 0 && !options_.accumulate) {
      std::ranges::fill(gradient_view(*parameter).values<float>(), 0.0F);
    }
    finish(parameter->index);
  }
}

}  // namespace dtrain
