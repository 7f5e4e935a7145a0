// One forward and backward of one micro-batch.
//
// A Pass owns the tape. What it reads (weights, buffers) and where it leaves gradients are its
// arguments, and the model is an immutable description, so any number of passes run side by side
// over one model: lanes of a process, or replicas.
//
//   Pass pass(context, layout_views, {.training = true, ...});
//   Value y = model.forward(pass, pass.input(batch.inputs));
//   pass.backward(y, loss.backward(...));   // calls `finished` once per parameter
//
// Note [Finished gradients]: within a backward, the gradient of each parameter is finished exactly
// once: when the last of its uses has contributed, in reverse topological order, or at the end for
// a parameter that the loss does not reach, whose gradient is zero. What is finished is final: the
// Reducer may send it on while the backward goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "dtrain/core/autograd/parameter.h"
#include "dtrain/core/autograd/sync_group.h"
#include "dtrain/core/autograd/value.h"
#include "dtrain/core/ops/context.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/random/philox.h"

namespace dtrain {

// Memory that a pass works on, by arena offset. The spans outlive the pass.
struct PassMemory {
  std::span<const float> weights;
  std::span<const float> buffers;
  std::span<float> gradients;  // with the statistic sums at its end; empty if none
  std::span<const Parameter* const> parameters;  // in arena order
};

struct PassOptions {
  bool training = true;
  // Later micro-batches of a virtual rank add to the gradients, in order; the first one writes.
  bool accumulate = false;
  RandomKey key{0};  // of the recipe's seed
  std::int64_t batch = 0;
  std::span<const std::int64_t> positions = {};  // [n] of the samples in the global batch
  // Told of each finished parameter (its index); see Note [Finished gradients].
  std::function<void(int)> finished = nullptr;
  // The passes of the other virtual ranks, for layers that pool over them; null: this one alone.
  SyncGroup* sync = nullptr;
};

class Pass {
 public:
  using Backward = std::function<void(Pass& pass, const Tensor& dy)>;

  Pass(OpContext& context, const PassMemory& memory, PassOptions options);

  OpContext& context() { return context_; }
  bool training() const { return options_.training; }
  SyncGroup* sync() const { return options_.sync; }

  // A value without gradient.
  Value input(Tensor tensor) const { return {.tensor = std::move(tensor)}; }

  // The parameter's weights; counts one use, which must contribute one gradient.
  Tensor weight(const Parameter& parameter);
  Tensor buffer(const Buffer& buffer) const;

  // Puts an operation on the tape. `backward` gets the gradient of the output and passes gradients
  // on through add_gradient and parameter_gradient. `again`: see Note [Kept values].
  Value record(Tensor output, Backward backward,
               std::shared_ptr<const Value::Again> again = nullptr);

  // Adds to the gradient of the value that tape entry `entry` made (Value::entry of an operation's
  // input); ignored where no gradient flows. By entry, not by value, so that an operation whose
  // backward does not read its input does not keep it alive. An image's gradient is brought to the
  // layout of the image.
  void add_gradient(int entry, Tensor gradient);

  // Adds one use's gradient: write(destination) fills a tensor of the parameter's shape.
  template <typename Write>
  void parameter_gradient(const Parameter& parameter, Write&& write) {
    const bool adds = options_.accumulate || contributions_[parameter.index] > 0;
    const Tensor in_arena = gradient_view(parameter);
    if (adds) {
      const Tensor part =
          Tensor::empty(parameter.shape, DType::f32, context_.allocator(), parameter.name);
      write(part);
      ops::add_in_place(context_, in_arena, part);
    } else {
      write(in_arena);
    }
    contributed(parameter);
  }

  // The same for an operator that can add: write(destination, add) adds to what the tensor holds,
  // or writes it.
  template <typename Write>
  void parameter_gradient_in_place(const Parameter& parameter, Write&& write) {
    write(gradient_view(parameter), options_.accumulate || contributions_[parameter.index] > 0);
    contributed(parameter);
  }

  // The gradient that the entry's value has so far, for an operator that adds to it in place and
  // then gives it back to add_gradient. Undefined if there is none, or somebody else holds it.
  Tensor take_gradient(int entry);

  // Adds a batch's statistics per channel; see Note [Running statistics]. variance is biased.
  // `pooled`: values per channel that mean and variance were taken of, `count` of them this pass's.
  void add_statistics(const RunningStatistics& statistics, std::int64_t count, std::int64_t pooled,
                      const Tensor& mean, const Tensor& variance);

  // Key and positions of one dropout call.
  RandomKey random_key(const RandomSite& site);
  std::span<const std::int64_t> positions() const { return options_.positions; }

  // Runs the tape backwards from `output` with its gradient. Once per pass.
  void backward(const Value& output, Tensor gradient);

  // Elements per sample of what a micro-batch keeps until its backward: the outputs on the tape
  // that are not made again.
  std::int64_t recorded_row_elements() const { return recorded_row_elements_; }

  // Whether backward() reached the parameter.
  bool used(int parameter) const { return contributions_[parameter] > 0; }

 private:
  struct Entry {
    Backward backward;
    Shape shape;  // of the output
    Layout layout;
    Tensor gradient;
  };
  Tensor gradient_view(const Parameter& parameter) const;
  void contributed(const Parameter& parameter);
  void finish(int parameter);

  OpContext& context_;
  PassMemory memory_;
  PassOptions options_;
  std::vector<Entry> tape_;
  std::vector<int> uses_;           // [parameter] uses in forward that have not contributed yet
  std::vector<int> contributions_;  // [parameter]
  std::vector<bool> finished_;      // [parameter]
  std::vector<int> calls_;          // [random site]
  std::int64_t recorded_row_elements_ = 0;
  bool ran_backward_ = false;
};

}  // namespace dtrain
