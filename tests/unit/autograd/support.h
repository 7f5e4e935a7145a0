// A model in its arena, and passes over it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/layers.h"

namespace dtrain {

// Numbers that are exact in float and whose sums depend on the order.
inline std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  RandomSequence random{RandomKey(seed)};
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

// What one forward and backward gives.
struct PassResult {
  std::vector<float> output;
  Shape output_shape;
  std::vector<int> finished;  // in order
};

// A model with initialized weights and a gradient arena.
class Fixture {
 public:
  explicit Fixture(std::unique_ptr<Module> module, std::uint64_t seed = 1)
      : model(std::move(module)),
        layout(*model),
        arena(layout),
        gradients(static_cast<std::size_t>(layout.gradient_elements()), 0.5F) {
    context.bind_to_this_thread();
    initialize(arena, RandomKey(seed));
  }

  PassMemory memory() {
    return {.weights = std::as_const(arena).weights(),
            .buffers = std::as_const(arena).buffers(),
            .gradients = gradients,
            .parameters = layout.parameters()};
  }

  // Forward, and backward with a gradient of numbers(seed); `options.finished` is taken.
  PassResult run(const std::vector<float>& input, const Shape& shape, PassOptions options = {},
                 std::uint64_t gradient_seed = 99) {
    PassResult result;
    const std::vector<std::int64_t> positions = positions_of(shape[0]);
    if (options.positions.empty()) options.positions = positions;
    options.finished = [&](int parameter) { result.finished.push_back(parameter); };
    Pass pass(context, memory(), options);
    const Tensor x = Tensor::empty(shape, DType::f32, allocator, "input");
    std::ranges::copy(input, x.values<float>().begin());
    const Value y = model->forward(pass, pass.input(x));
    result.output_shape = y.shape();
    const Tensor plain = ops::to_layout(context, y.tensor, Layout{});
    result.output.assign(plain.values<float>().begin(), plain.values<float>().end());
    if (options.training) pass.backward(y, output_gradient(y.tensor, gradient_seed));
    return result;
  }

  Tensor output_gradient(const Tensor& output, std::uint64_t seed) {
    const Tensor dy = Tensor::empty(output.shape(), DType::f32, allocator, "output gradient");
    const std::vector<float> values = numbers(dy.elements(), seed);
    std::ranges::copy(values, dy.values<float>().begin());
    return dy;
  }

  std::span<const float> gradient(const Parameter& parameter) const {
    return std::span(gradients).subspan(parameter.offset, parameter.elements());
  }
  const Parameter& parameter(const std::string& name) const {
    for (const Parameter* p : layout.parameters()) {
      if (p->name == name) return *p;
    }
    throw std::runtime_error("no parameter " + name);
  }

  static std::vector<std::int64_t> positions_of(std::int64_t n) {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(n));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }

  std::unique_ptr<Module> model;
  ArenaLayout layout;
  ParameterArena arena;
  std::vector<float> gradients;
  Allocator allocator{"test"};
  OpContext context{allocator, 1};
};

// A module whose forward is a function over the layers that it was given.
class Custom final : public Module {
 public:
  using Forward = std::function<Value(const Custom&, Pass&, const Value&)>;
  explicit Custom(Forward forward) : forward_(std::move(forward)) {}
  Value forward(Pass& pass, const Value& x) const override { return forward_(*this, pass, x); }

  template <typename Child, typename... Arguments>
  Custom& layer(const std::string& name, Arguments&&... arguments) {
    layers_.push_back(&add<Child>(name, std::forward<Arguments>(arguments)...));
    return *this;
  }
  template <typename Child>
  const Child& child(std::size_t index) const {
    return dynamic_cast<const Child&>(*layers_.at(index));
  }
  using Module::add_buffer;
  using Module::add_parameter;

 private:
  Forward forward_;
  std::vector<const Module*> layers_;
};

}  // namespace dtrain
