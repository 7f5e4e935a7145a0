// The tape: what is finished when, what is added in which order, what is left behind.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace dtrain {
namespace {

const Shape plain_input{4, 5};

std::unique_ptr<Custom> two_layers() {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    return self.child<Linear>(1).forward(
        pass, functions::relu(pass, self.child<Linear>(0).forward(pass, x)));
  });
  model->layer<Linear>("fc1", 5, 7);
  model->layer<Linear>("fc2", 7, 3);
  return model;
}

// One layer used twice.
std::unique_ptr<Custom> tied() {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const auto& layer = self.child<Linear>(0);
    return layer.forward(pass, functions::tanh(pass, layer.forward(pass, x)));
  });
  model->layer<Linear>("tied", 5, 5);
  return model;
}

std::unique_ptr<Custom> with_unused() {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    return self.child<Linear>(0).forward(pass, x);
  });
  model->layer<Linear>("head", 5, 3);
  model->layer<Linear>("head2", 5, 3);
  return model;
}

TEST(Pass, FinishesEachParameterOnceInArenaOrder) {
  Fixture f(two_layers());
  const PassResult result = f.run(numbers(20, 3), plain_input);
  EXPECT_EQ(result.finished, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(f.layout.parameters()[0]->name, "fc2.bias");
  EXPECT_EQ(f.layout.parameters()[3]->name, "fc1.weight");
}

TEST(Pass, WhatIsFinishedIsFinal) {
  for (auto make : {two_layers, tied, with_unused}) {
    Fixture f(make());
    std::vector<std::vector<float>> seen(f.layout.parameters().size());
    Pass watched(f.context, f.memory(), {.finished = [&](int index) {
                   const auto gradient = f.gradient(*f.layout.parameters()[index]);
                   seen[index].assign(gradient.begin(), gradient.end());
                 }});
    std::vector<float> input = numbers(20, 4);
    const Value y =
        f.model->forward(watched, watched.input(Tensor::wrap(std::span(input), plain_input)));
    watched.backward(y, f.output_gradient(y.tensor, 5));
    for (const Parameter* p : f.layout.parameters()) {
      const auto gradient = f.gradient(*p);
      EXPECT_EQ(seen[p->index], std::vector<float>(gradient.begin(), gradient.end())) << p->name;
    }
  }
}

TEST(Pass, TiedWeightsGetTheSumOfBothUses) {
  Fixture f(tied());
  const std::vector<float> input = numbers(20, 3);
  const PassResult result = f.run(input, plain_input);
  EXPECT_EQ(result.finished, (std::vector<int>{0, 1}));

  // The same model with two layers of equal weights: the gradients of both add up.
  auto untied = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    return self.child<Linear>(1).forward(
        pass, functions::tanh(pass, self.child<Linear>(0).forward(pass, x)));
  });
  untied->layer<Linear>("first", 5, 5);
  untied->layer<Linear>("second", 5, 5);
  Fixture g(std::move(untied));
  for (const char* part : {"weight", "bias"}) {
    for (const char* layer : {"first.", "second."}) {
      std::ranges::copy(f.arena.weight(f.parameter(std::string("tied.") + part)),
                        g.arena.weight(g.parameter(std::string(layer) + part)).begin());
    }
  }
  EXPECT_EQ(g.run(input, plain_input).output, result.output);
  for (const std::string part : {"weight", "bias"}) {
    const auto tied_gradient = f.gradient(f.parameter("tied." + part));
    const auto first = g.gradient(g.parameter("first." + part));
    const auto second = g.gradient(g.parameter("second." + part));
    for (std::size_t i = 0; i < tied_gradient.size(); ++i) {
      // The backward meets the second use first.
      EXPECT_EQ(tied_gradient[i], second[i] + first[i]) << part << " " << i;
    }
  }
}

TEST(Pass, AnUnusedParameterIsFinishedWithAZeroGradient) {
  Fixture f(with_unused());
  std::vector<float> input = numbers(20, 3);
  std::vector<int> finished;
  Pass pass(f.context, f.memory(), {.finished = [&](int i) { finished.push_back(i); }});
  const Value y = f.model->forward(pass, pass.input(Tensor::wrap(std::span(input), plain_input)));
  pass.backward(y, f.output_gradient(y.tensor, 1));
  std::ranges::sort(finished);
  EXPECT_EQ(finished, (std::vector<int>{0, 1, 2, 3}));
  for (const Parameter* p : f.layout.parameters()) {
    const bool used = p->name.starts_with("head.");
    EXPECT_EQ(pass.used(p->index), used) << p->name;
    EXPECT_EQ(std::ranges::all_of(f.gradient(*p), [](float g) { return g == 0; }), !used);
  }
}

// Used in forward by a branch that the output does not depend on.
TEST(Pass, AUseThatTheOutputDoesNotReachIsNotWaitedFor) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const auto& layer = self.child<Linear>(0);
    const Value y = layer.forward(pass, x);
    layer.forward(pass, y);  // dropped
    return y;
  });
  model->layer<Linear>("fc", 5, 5);
  Fixture f(std::move(model));
  EXPECT_EQ(f.run(numbers(20, 3), plain_input).finished.size(), 2U);
  const auto gradient = f.gradient(f.parameter("fc.bias"));
  const std::vector<float> dy = numbers(20, 99);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(gradient[i], dy[i] + dy[5 + i] + dy[10 + i] + dy[15 + i], 1e-5);
  }
}

TEST(Pass, MicroBatchesAddUpInOrder) {
  for (auto make : {two_layers, tied, with_unused}) {
    Fixture single(make()), accumulated(make());
    std::vector<float> sum(single.gradients.size());
    for (int m = 0; m < 4; ++m) {
      const std::vector<float> input = numbers(20, 10 + m);
      single.run(input, plain_input, {}, 50 + m);
      accumulated.run(input, plain_input, {.accumulate = m > 0}, 50 + m);
      for (const Parameter* p : single.layout.parameters()) {
        const auto part = single.gradient(*p);
        for (std::size_t i = 0; i < part.size(); ++i) {
          float& total = sum[p->offset + i];
          total = m == 0 ? part[i] : total + part[i];
        }
      }
    }
    for (const Parameter* p : single.layout.parameters()) {
      const auto got = accumulated.gradient(*p);
      for (std::size_t i = 0; i < got.size(); ++i) {
        // A parameter with two uses adds each of them by itself.
        if (p->name.starts_with("tied")) {
          EXPECT_NEAR(got[i], sum[p->offset + i], 1e-4) << p->name;
        } else {
          EXPECT_EQ(got[i], sum[p->offset + i]) << p->name;
        }
      }
    }
  }
}

TEST(Pass, BothInputsOfAnOperationMayBeTheSameValue) {
  for (const bool product : {false, true}) {
    auto model =
        std::make_unique<Custom>([product](const Custom& self, Pass& pass, const Value& x) {
          const Value y = self.child<Linear>(0).forward(pass, x);
          return product ? functions::multiply(pass, y, y) : functions::add(pass, y, y);
        });
    model->layer<Linear>("fc", 5, 3);
    Fixture f(std::move(model));
    auto plain = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
      return self.child<Linear>(0).forward(pass, x);
    });
    plain->layer<Linear>("fc", 5, 3);
    Fixture g(std::move(plain));
    const std::vector<float> y = g.run(numbers(20, 3), plain_input).output;
    f.run(numbers(20, 3), plain_input);
    const std::vector<float> dy = numbers(12, 99);
    const auto bias = f.gradient(f.parameter("fc.bias"));
    for (std::size_t c = 0; c < 3; ++c) {
      double expected = 0;
      for (std::size_t n = 0; n < 4; ++n) {
        expected += 2.0 * dy[3 * n + c] * (product ? y[3 * n + c] : 1);
      }
      EXPECT_NEAR(bias[c], expected, 1e-5) << product;
    }
  }
}

// A gradient that several places hold is never added to in place.
TEST(Pass, AGradientThatIsSharedStaysAsItIs) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const Value a = self.child<Linear>(0).forward(pass, x);
    const Value b = self.child<Linear>(1).forward(pass, x);
    // a and b are given one tensor; a then gets another one on top.
    return functions::add(pass, functions::add(pass, a, b), a);
  });
  model->layer<Linear>("a", 5, 3);
  model->layer<Linear>("b", 5, 3);
  Fixture f(std::move(model));
  std::vector<float> input = numbers(20, 3);
  const std::vector<float> dy = numbers(12, 8);
  const auto expect_gradients = [&] {
    for (std::size_t c = 0; c < 3; ++c) {
      const float sum = dy[c] + dy[3 + c] + dy[6 + c] + dy[9 + c];
      EXPECT_NEAR(f.gradient(f.parameter("a.bias"))[c], 2 * sum, 1e-5);
      EXPECT_NEAR(f.gradient(f.parameter("b.bias"))[c], sum, 1e-5);
    }
  };
  {
    Pass pass(f.context, f.memory(), {});
    const Value y = f.model->forward(pass, pass.input(Tensor::wrap(std::span(input), plain_input)));
    pass.backward(y, f.output_gradient(y.tensor, 8));
    expect_gradients();
  }
  {
    // Memory of the caller is not written to either.
    std::vector<float> mine = dy;
    Pass pass(f.context, f.memory(), {});
    const Value y = f.model->forward(pass, pass.input(Tensor::wrap(std::span(input), plain_input)));
    pass.backward(y, Tensor::wrap(std::span(mine), {4, 3}));
    expect_gradients();
    EXPECT_EQ(mine, dy);
  }
}

// Behind flatten(input) nobody reads the gradient of the input, so it is not computed.
TEST(Pass, NoGradientFlowsToTheInput) {
  Fixture f(two_layers());
  std::vector<float> input = numbers(20, 3);
  Pass pass(f.context, f.memory(), {});
  const Value x = pass.input(Tensor::wrap(std::span(input), {4, 5, 1}));
  EXPECT_FALSE(x.needs_gradient());
  const Value flat = functions::flatten(pass, x);
  EXPECT_FALSE(flat.needs_gradient());
  EXPECT_FALSE(functions::relu(pass, flat).needs_gradient());
  EXPECT_FALSE(functions::add(pass, flat, flat).needs_gradient());
  EXPECT_FALSE(functions::multiply(pass, flat, flat).needs_gradient());
  const Value y = f.model->forward(pass, flat);
  EXPECT_TRUE(y.needs_gradient());
  EXPECT_TRUE(functions::add(pass, y, pass.input(y.tensor)).needs_gradient());
}

TEST(Pass, EvaluationLeavesNoTape) {
  Fixture f(two_layers());
  std::vector<float> input = numbers(20, 3);
  Pass pass(f.context, f.memory(), {.training = false});
  const Value y = f.model->forward(pass, pass.input(Tensor::wrap(std::span(input), plain_input)));
  EXPECT_FALSE(y.needs_gradient());
  EXPECT_EQ(pass.recorded_row_elements(), 0);
  EXPECT_EQ(f.run(input, plain_input).output,
            std::vector<float>(y.tensor.values<float>().begin(), y.tensor.values<float>().end()));
}

TEST(Pass, RefusesWhatItIsNotMadeFor) {
  Fixture f(two_layers()), other(two_layers());
  std::vector<float> input = numbers(20, 3);
  Pass pass(f.context, f.memory(), {});
  const Value x = pass.input(Tensor::wrap(std::span(input), plain_input));
  EXPECT_THROW(other.model->forward(pass, x), InternalError);  // another model's parameters
  const Value y = f.model->forward(pass, x);
  EXPECT_THROW(pass.backward(y, f.output_gradient(x.tensor, 1)), InternalError);  // its shape
  EXPECT_THROW(pass.backward(y, f.output_gradient(y.tensor, 1)), InternalError);  // a second time
  Pass fresh(f.context, f.memory(), {});
  EXPECT_THROW(fresh.backward(fresh.input(x.tensor), f.output_gradient(x.tensor, 1)),
               InternalError);
}

// A micro-batch without samples.
TEST(Pass, NoSamplesGiveZeroGradients) {
  Fixture f(two_layers());
  const PassResult result = f.run({}, {0, 5});
  EXPECT_EQ(result.finished.size(), 4U);
  for (const Parameter* p : f.layout.parameters()) {
    EXPECT_TRUE(std::ranges::all_of(f.gradient(*p), [](float g) { return g == 0; })) << p->name;
  }
}

TEST(Pass, AnErrorInBackwardLeavesNothingBehind) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const Value y = self.child<Linear>(0).forward(pass, x);
    const Value z = pass.record(
        y.tensor, [](Pass&, const Tensor&) { throw std::runtime_error("backward failed"); });
    return functions::relu(pass, z);
  });
  model->layer<Linear>("fc", 5, 3);
  Fixture f(std::move(model));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(f.run(numbers(20, 3), plain_input), std::runtime_error);
    EXPECT_EQ(f.allocator.stats().allocated, 0U);
  }
}

// What the tape holds is freed as the backward goes on.
TEST(Pass, FreesWhatTheBackwardHasUsed) {
  constexpr std::int64_t n = 64, width = 512;
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    Value y = self.child<Linear>(0).forward(pass, x);
    for (int i = 0; i < 8; ++i) y = functions::tanh(pass, y);
    return y;
  });
  model->layer<Linear>("fc", 5, width);
  Fixture f(std::move(model));
  f.run(numbers(n * 5, 3), {n, 5});
  const std::uint64_t activation = n * width * sizeof(float);
  // Nine outputs, the gradient and a little: not nine gradients on top.
  EXPECT_LT(f.allocator.stats().peak_allocated, 14 * activation);
  EXPECT_EQ(f.allocator.stats().allocated, 0U);
}

TEST(Pass, AWarmPassAsksTheSystemForNothing) {
  Fixture f(two_layers());
  f.run(numbers(20, 1), plain_input);
  f.run(numbers(20, 2), plain_input, {.accumulate = true});
  const std::uint64_t calls = f.allocator.stats().system_calls;
  for (int i = 0; i < 5; ++i) {
    f.run(numbers(20, 10 + i), plain_input, {.accumulate = i % 2 == 1});
  }
  EXPECT_EQ(f.allocator.stats().system_calls, calls);
  EXPECT_EQ(f.allocator.stats().allocated, 0U);
}

// Several passes over one model at once give the bits of serial ones.
TEST(Pass, PassesShareAModel) {
  Fixture f(two_layers());
  const auto pass_of = [&](int lane) {
    Allocator allocator("lane");
    OpContext context(allocator, 1);
    context.bind_to_this_thread();
    std::vector<float> gradients(f.gradients.size());
    PassMemory memory = f.memory();
    memory.gradients = gradients;
    for (int m = 0; m < 10; ++m) {
      std::vector<float> input = numbers(20, 100 * lane + m);
      Pass pass(context, memory, {.accumulate = m > 0});
      const Value y =
          f.model->forward(pass, pass.input(Tensor::wrap(std::span(input), plain_input)));
      std::vector<float> dy = numbers(12, 7 * lane + m);
      pass.backward(y, Tensor::wrap(std::span(dy), {4, 3}));
    }
    return gradients;
  };
  std::vector<std::vector<float>> serial, parallel(4);
  for (int lane = 0; lane < 4; ++lane) serial.push_back(pass_of(lane));
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] { parallel[lane] = pass_of(lane); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(parallel, serial);
}

}  // namespace
}  // namespace dtrain
