// Initial values: bounds and deviations of torch.nn.init, and what they depend on.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

#include "dtrain/core/base/hash.h"

namespace dtrain {
namespace {

std::vector<float> initial(const Shape& shape, InitScheme init, std::int64_t fan_in,
                           std::uint64_t seed = 1) {
  Bag model;
  model.add_parameter("w", shape, init, fan_in);
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  initialize(arena, RandomKey(seed));
  const auto values = arena.weight(*layout.parameters()[0]);
  return {values.begin(), values.end()};
}

void expect_uniform(const std::vector<float>& values, double bound) {
  double sum = 0, squares = 0, largest = 0;
  for (const float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
    largest = std::max(largest, static_cast<double>(std::abs(x)));
  }
  const double n = static_cast<double>(values.size());
  EXPECT_LE(largest, bound * (1 + 1e-6));
  EXPECT_GT(largest, bound * 0.995);
  EXPECT_NEAR(sum / n, 0, bound * 0.03);
  EXPECT_NEAR(std::sqrt(squares / n), bound / std::sqrt(3), bound * 0.02);
}

void expect_normal(const std::vector<float>& values, double deviation) {
  double sum = 0, squares = 0, inside = 0;
  for (const float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
    inside += std::abs(x) < deviation ? 1 : 0;
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, deviation * 0.04);
  EXPECT_NEAR(std::sqrt(squares / n), deviation, deviation * 0.03);
  EXPECT_NEAR(inside / n, 0.6827, 0.02);
}

TEST(Init, BoundsOfLinearWeights) {
  const Shape shape{200, 50};  // [out, in]
  expect_uniform(initial(shape, InitScheme::uniform_fan_in, 50), 1 / std::sqrt(50.0));
  expect_uniform(initial(shape, InitScheme::kaiming_uniform, 50), std::sqrt(6 / 50.0));
  expect_uniform(initial(shape, InitScheme::xavier_uniform, 50), std::sqrt(6 / 250.0));
  expect_normal(initial(shape, InitScheme::kaiming_normal, 50), std::sqrt(2 / 50.0));
  expect_normal(initial(shape, InitScheme::kaiming_normal_fan_out, 50), std::sqrt(2 / 200.0));
  expect_normal(initial(shape, InitScheme::xavier_normal, 50), std::sqrt(2 / 250.0));
}

TEST(Init, FansOfAConvolutionCountItsWindow) {
  const Shape shape{64, 16, 3, 3};  // [out, in, height, width]
  expect_uniform(initial(shape, InitScheme::uniform_fan_in, 144), 1 / std::sqrt(144.0));
  expect_uniform(initial(shape, InitScheme::kaiming_uniform, 144), std::sqrt(6 / 144.0));
  expect_uniform(initial(shape, InitScheme::xavier_uniform, 144), std::sqrt(6 / (144.0 + 576)));
}

TEST(Init, ABiasHasTheFanOfItsLayer) {
  Bag model;
  model.add<Linear>("fc", 64, 4000);
  model.add<Conv2d>("conv", 8, 4000, 3, ops::Conv2dOptions{.groups = 2});
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  initialize(arena, RandomKey(1));
  const auto values = [&](const char* name) {
    const auto span = arena.weight(parameter_named(layout, name));
    return std::vector<float>(span.begin(), span.end());
  };
  expect_uniform(values("fc.bias"), 1.0 / 8);
  expect_uniform(values("conv.bias"), 1.0 / 6);
  expect_uniform(values("conv.weight"), 1.0 / 6);
}

TEST(Init, ConstantsAndBuffers) {
  Bag model;
  model.add<BatchNorm>("norm", 5);
  model.add<Linear>("fc", 3, 3, true, InitScheme::zeros);
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  std::ranges::fill(arena.weights(), 7.0F);
  std::ranges::fill(arena.buffers(), 7.0F);
  initialize(arena, RandomKey(1));
  const auto all = [](std::span<const float> values, float x) {
    return std::ranges::all_of(values, [x](float value) { return value == x; });
  };
  EXPECT_TRUE(all(arena.weight(parameter_named(layout, "norm.weight")), 1));
  EXPECT_TRUE(all(arena.weight(parameter_named(layout, "norm.bias")), 0));
  EXPECT_TRUE(all(arena.weight(parameter_named(layout, "fc.weight")), 0));
  EXPECT_TRUE(all(arena.weight(parameter_named(layout, "fc.bias")), 0));
  EXPECT_TRUE(all(arena.buffer(*layout.buffers()[0]), 0));
  EXPECT_TRUE(all(arena.buffer(*layout.buffers()[1]), 1));
}

TEST(Init, NumbersDependOnNameAndSeedAlone) {
  Bag one, two;
  one.add<Linear>("a", 6, 6);
  one.add<Linear>("b", 6, 6);
  two.add<Linear>("other", 9, 9);
  two.add<Linear>("b", 6, 6);
  two.add<Linear>("a", 6, 6);
  const ArenaLayout one_layout(one), two_layout(two);
  ParameterArena first(one_layout), second(two_layout);
  initialize(first, RandomKey(5));
  initialize(second, RandomKey(5));
  const auto values = [](ParameterArena& arena, const char* name) {
    const auto span = arena.weight(parameter_named(arena.layout(), name));
    return std::vector<float>(span.begin(), span.end());
  };
  for (const char* name : {"a.weight", "a.bias", "b.weight", "b.bias"}) {
    EXPECT_EQ(values(first, name), values(second, name)) << name;
  }
  EXPECT_NE(values(first, "a.weight"), values(first, "b.weight"));
  const std::vector<float> before = values(first, "a.weight");
  initialize(first, RandomKey(6));
  EXPECT_NE(values(first, "a.weight"), before);
}

// Runs of a parameter are filled side by side: their numbers are those of one after the other.
TEST(Init, ThreadsDoNotMatter) {
  for (const InitScheme scheme : {InitScheme::normal, InitScheme::uniform_fan_in}) {
    Bag model;
    model.add_parameter("w", {3, 40001}, scheme, 5);
    const ArenaLayout layout(model);
    ParameterArena one(layout), many(layout);
    ThreadPool pool(3);
    initialize(one, RandomKey(1));
    initialize(many, RandomKey(1), &pool);
    EXPECT_EQ(one.digest(), many.digest());
    RandomSequence random(RandomKey(1).fork(RandomPurpose::weights, hash64("w")));
    for (const float value : one.weight(*layout.parameters()[0])) {
      const double expected = scheme == InitScheme::normal
                                  ? static_cast<double>(0.02F) * random.normal()
                                  : random.uniform(-1 / std::sqrt(5.0), 1 / std::sqrt(5.0));
      ASSERT_EQ(value, static_cast<float>(expected));
    }
  }
}

}  // namespace
}  // namespace dtrain
