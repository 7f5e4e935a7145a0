// Gradients of whole models against finite differences, and of layers in channel blocks.
#include <cmath>
#include <string>
#include <vector>

#include "support.h"

#include "dtrain/models/convnet.h"
#include "dtrain/models/mlp.h"
#include "dtrain/models/resnet.h"

namespace dtrain {
namespace {

// sum(dy * output) in double.
double objective(Fixture& f, const std::vector<float>& input, const Shape& shape) {
  const std::vector<std::int64_t> positions = Fixture::positions_of(shape[0]);
  Pass pass(f.context, f.memory(), {.training = true, .key = RandomKey(7), .positions = positions});
  std::vector<float> copy = input;
  const Value y = f.model->forward(pass, pass.input(Tensor::wrap(std::span(copy), shape)));
  const std::vector<float> dy = numbers(y.tensor.elements(), 99);
  double sum = 0;
  for (std::size_t i = 0; i < dy.size(); ++i)
    sum += static_cast<double>(dy[i]) * y.tensor.data<float>()[i];
  return sum;
}

// The parameters' gradients against central differences over the model's own forward, along random
// directions: the error of a float forward averages out over a direction.
void check_gradients(std::unique_ptr<Module> model, const Shape& shape, double tolerance,
                     double step = 1.0 / 256) {
  Fixture f(std::move(model));
  const std::vector<float> input = numbers(shape.elements(), 21);
  f.run(input, shape, {.key = RandomKey(7)});
  const std::vector<float> gradients = f.gradients;
  for (const Parameter* p : f.layout.parameters()) {
    const auto weight = f.arena.weight(*p);
    const std::vector<float> before(weight.begin(), weight.end());
    for (int trial = 0; trial < 3; ++trial) {
      const std::vector<float> direction = numbers(p->elements(), 300 + trial);
      double norm = 0, slope = 0, magnitude = 0;
      for (std::size_t i = 0; i < direction.size(); ++i) {
        norm += static_cast<double>(direction[i]) * direction[i];
      }
      norm = std::sqrt(norm);
      const auto at = [&](double sign) {
        for (std::size_t i = 0; i < before.size(); ++i) {
          weight[i] = static_cast<float>(before[i] + sign * step * direction[i] / norm);
        }
        return objective(f, input, shape);
      };
      const double above = at(1), below = at(-1);
      std::ranges::copy(before, weight.begin());
      for (std::size_t i = 0; i < direction.size(); ++i) {
        const double part = static_cast<double>(gradients[p->offset + i]) * direction[i] / norm;
        slope += part;
        magnitude += std::abs(part);
      }
      EXPECT_NEAR((above - below) / (2 * step), slope, tolerance * (1 + magnitude))
          << p->name << ", direction " << trial;
    }
  }
}

config::Mlp mlp_options(const std::string& activation, double dropout) {
  config::Mlp options;
  options.set_inputs(12);
  options.add_hidden(9);
  options.add_hidden(6);
  options.set_outputs(4);
  options.set_bias(true);
  options.set_activation(activation);
  options.set_init("default");
  options.set_dropout(dropout);
  return options;
}

config::Convnet convnet_options(bool batch_norm, double dropout) {
  config::Convnet options;
  options.add_channels(8);
  options.add_channels(16);
  options.set_hidden(10);
  options.set_classes(5);
  options.set_batch_norm(batch_norm);
  options.set_dropout(dropout);
  return options;
}

TEST(Gradients, OfAnMlp) {
  for (const char* activation : {"tanh", "gelu", "sigmoid"}) {
    SCOPED_TRACE(activation);
    check_gradients(std::make_unique<Mlp>(mlp_options(activation, 0), ModelInput{.shape = {12}}),
                    {6, 12}, 1e-3);
  }
}

TEST(Gradients, OfAnMlpWithDropout) {
  check_gradients(std::make_unique<Mlp>(mlp_options("tanh", 0.4), ModelInput{.shape = {3, 4, 1}}),
                  {6, 3, 4, 1}, 1e-3);
}

// Kinks of ReLU and max pooling lie within long steps, hence short ones, which float blurs more.
TEST(Gradients, OfAConvnet) {
  check_gradients(
      std::make_unique<Convnet>(convnet_options(false, 0), ModelInput{.shape = {8, 8, 3}}),
      {3, 8, 8, 3}, 3e-3, 1.0 / 4096);
}

TEST(Gradients, OfAConvnetWithBatchNormAndDropout) {
  check_gradients(
      std::make_unique<Convnet>(convnet_options(true, 0.3), ModelInput{.shape = {8, 8, 3}}),
      {5, 8, 8, 3}, 3e-3, 1.0 / 4096);
}

TEST(Gradients, OfAGroupNorm) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const Value y = self.child<Conv2d>(0).forward(pass, x);
    return functions::flatten(pass,
                              functions::tanh(pass, self.child<GroupNorm>(1).forward(pass, y)));
  });
  model->layer<Conv2d>("conv", 3, 32, 3, ops::Conv2dOptions{.padding = 1});
  model->layer<GroupNorm>("norm", 4, 32);
  check_gradients(std::move(model), {2, 5, 5, 3}, 1e-3);
}

TEST(Gradients, OfResidualBlocks) {
  for (const bool bottleneck : {false, true}) {
    for (const int stride : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} of stride {}", bottleneck ? "bottleneck" : "basic", stride));
      auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
        const Value y = self.child<Conv2d>(0).forward(pass, x);
        return functions::flatten(pass, self.child<ResidualBlock>(1).forward(pass, y));
      });
      model->layer<Conv2d>("stem", 3, 16, 3, ops::Conv2dOptions{.padding = 1}, false);
      model->layer<ResidualBlock>(
          "block",
          ResidualBlock::Options{
              .in = 16, .width = bottleneck ? 4 : 16, .stride = stride, .bottleneck = bottleneck});
      check_gradients(std::move(model), {3, 6, 6, 3}, 5e-3, 1.0 / 4096);
    }
  }
}

// Smooth layers around a convolution that works in channel blocks, flattened in H, W, C order: any
// error in the order of elements would be of the size of the gradient itself.
TEST(Gradients, KeepTheLayoutOfTheirValueThroughFlatten) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    Value y = functions::tanh(pass, self.child<Conv2d>(0).forward(pass, x));
    y = functions::tanh(pass, self.child<Conv2d>(1).forward(pass, y));
    y = functions::avg_pool2d(pass, y, {.kernel = 2, .stride = 2});
    return self.child<Linear>(2).forward(pass, functions::flatten(pass, y));
  });
  model->layer<Conv2d>("conv1", 3, 32, 3, ops::Conv2dOptions{.padding = 1});
  model->layer<Conv2d>("conv2", 32, 32, 3, ops::Conv2dOptions{.padding = 1});
  model->layer<Linear>("fc", 4 * 4 * 32, 5);
  check_gradients(std::move(model), {2, 8, 8, 3}, 1e-3);
}

TEST(Gradients, ComeInTheLayoutOfTheirValue) {
  bool blocked = false;
  auto model = std::make_unique<Custom>([&blocked](const Custom& self, Pass& pass, const Value& x) {
    const Value y = self.child<Conv2d>(0).forward(pass, x);
    blocked = y.tensor.layout() != Layout{};
    const Layout layout = y.tensor.layout();
    const Value z = pass.record(y.tensor, [entry = y.entry, layout](Pass& p, const Tensor& dz) {
      EXPECT_EQ(dz.layout(), layout);
      p.add_gradient(entry, dz);
    });
    return functions::flatten(pass, z);
  });
  model->layer<Conv2d>("conv1", 32, 32, 3, ops::Conv2dOptions{.padding = 1});
  Fixture f(std::move(model));
  f.run(numbers(2 * 8 * 8 * 32, 1), {2, 8, 8, 32});
  if (!blocked) GTEST_SKIP() << "this machine's convolution works in plain NHWC";
}

class BatchNorms : public testing::Test {
 protected:
  static std::unique_ptr<Custom> model(bool fused) {
    auto model = std::make_unique<Custom>([fused](const Custom& self, Pass& pass, const Value& x) {
      const Value y = self.child<Conv2d>(0).forward(pass, x);
      const auto& norm = self.child<BatchNorm>(1);
      return fused ? norm.forward_relu(pass, y) : functions::relu(pass, norm.forward(pass, y));
    });
    model->layer<Conv2d>("conv", 3, 16, 3, ops::Conv2dOptions{.padding = 1});
    model->layer<BatchNorm>("norm", 16);
    return model;
  }
};

TEST_F(BatchNorms, FusedWithReluIsBatchNormThenReluToTheBit) {
  Fixture fused(model(true)), plain(model(false));
  for (Fixture* f : {&fused, &plain}) {
    std::ranges::copy(numbers(16, 5), f->arena.weight(f->parameter("norm.weight")).begin());
    std::ranges::copy(numbers(16, 6), f->arena.weight(f->parameter("norm.bias")).begin());
  }
  const std::vector<float> input = numbers(4 * 6 * 6 * 3, 1);
  const PassResult a = fused.run(input, {4, 6, 6, 3}), b = plain.run(input, {4, 6, 6, 3});
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.finished, b.finished);
  EXPECT_EQ(fused.gradients, plain.gradients);  // statistic sums too
  EXPECT_EQ(fused.run(input, {4, 6, 6, 3}, {.training = false}).output,
            plain.run(input, {4, 6, 6, 3}, {.training = false}).output);
}

TEST_F(BatchNorms, OneValuePerChannelIsAnErrorThatNamesTheLayer) {
  for (const bool fused : {false, true}) {
    Fixture f(model(fused));
    try {
      f.run(numbers(3, 1), {1, 1, 1, 3});
      FAIL() << "one value has no variance";
    } catch (const ConfigError& e) {
      EXPECT_STREQ(e.what(),
                   "norm.weight: batch norm got one value per channel (a micro-batch of one sample "
                   "of shape [1, 1, 1, 16]): use a larger batch.micro, or a batch.global that "
                   "leaves no single sample in the last batch");
    }
    EXPECT_EQ(f.allocator.stats().allocated, 0U);
    EXPECT_NO_THROW(f.run(numbers(3, 1), {1, 1, 1, 3}, {.training = false}));
  }
}

TEST(Dropout, DependsOnSeedLayerBatchAndPositionAlone) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    return self.child<Dropout>(1).forward(pass, self.child<Dropout>(0).forward(pass, x));
  });
  model->layer<Dropout>("a", 0.5F);
  model->layer<Dropout>("b", 0.5F);
  model->layer<Linear>("fc", 1, 1);
  Fixture f(std::move(model));
  const auto mask = [&](std::vector<std::int64_t> positions, std::uint64_t seed, int batch) {
    Pass pass(f.context, f.memory(),
              {.key = RandomKey(seed), .batch = batch, .positions = positions});
    const auto n = static_cast<std::int64_t>(positions.size());
    std::vector<float> ones(static_cast<std::size_t>(n) * 64, 1.0F);
    const Value y = f.model->forward(pass, pass.input(Tensor::wrap(std::span(ones), {n, 64})));
    return std::vector<float>(y.tensor.values<float>().begin(), y.tensor.values<float>().end());
  };
  const std::vector<float> both = mask({4, 5}, 1, 0);
  const std::vector<float> second = mask({5}, 1, 0);
  EXPECT_EQ(std::vector<float>(both.begin() + 64, both.end()), second);
  EXPECT_NE(mask({5}, 2, 0), second);
  EXPECT_NE(mask({5}, 1, 1), second);
  EXPECT_NE(mask({6}, 1, 0), second);
  // Kept by both layers, one value in four, and scaled by 1 / (1 - p) twice.
  const std::vector<float> many = mask(Fixture::positions_of(200), 1, 0);
  std::size_t kept = 0;
  for (const float x : many) {
    EXPECT_TRUE(x == 0 || x == 4) << x;
    kept += x != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(many.size()), 0.25, 0.02);
}

// A warm convnet, too, asks the system for nothing.
TEST(Convnet, AWarmPassAsksTheSystemForNothing) {
  Fixture f(std::make_unique<Convnet>(convnet_options(true, 0.3), ModelInput{.shape = {8, 8, 3}}));
  const std::vector<float> input = numbers(4 * 8 * 8 * 3, 1);
  f.run(input, {4, 8, 8, 3});
  f.run(input, {4, 8, 8, 3}, {.accumulate = true});
  const std::uint64_t calls = f.allocator.stats().system_calls;
  for (int i = 0; i < 4; ++i) f.run(input, {4, 8, 8, 3}, {.accumulate = i % 2 == 1});
  EXPECT_EQ(f.allocator.stats().system_calls, calls);
  EXPECT_EQ(f.allocator.stats().allocated, 0U);
}

}  // namespace
}  // namespace dtrain
