#include "dtrain/core/optim/lamb.h"

#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/tests/reference/optimizer.h"
#include "dtrain/tests/unit/ops_simd/instruction_sets.h"
#include "dtrain/tests/unit/optim/replica.h"

namespace dtrain {
namespace {

std::vector<float> random(std::size_t n, std::uint64_t seed) {
  RandomSequence numbers{RandomKey(seed)};
  std::vector<float> result(n);
  for (float& value : result) value = static_cast<float>(numbers.normal());
  return result;
}

config::Optimizer lamb(double beta1 = 0.9, double beta2 = 0.999, double eps = 1e-8) {
  config::Optimizer options;
  options.set_name("lamb");
  options.add_betas(beta1);
  options.add_betas(beta2);
  options.set_eps(eps);
  return options;
}

// Parameters of all kinds of sizes, with gaps: tails, whole blocks, one element; decayed and not.
const std::vector<ParameterSegment>& parameters() {
  static const std::vector<ParameterSegment> all = {{0, 1, 0},        {16, 101, 0.01},
                                                    {128, 4096, 0.1}, {4224, 2 * 4096 + 57, 0.01},
                                                    {12480, 0, 0.01}, {12480, 20, 0}};
  return all;
}
constexpr std::size_t arena = 12500;

TEST(LambTest, TwentyStepsMatchTheDoubleReference) {
  for_each_instruction_set([] {
    for (const config::Optimizer& options : {lamb(), lamb(0.7, 0.9, 1e-3)}) {
      std::vector<float> start = random(arena, 1);
      // The last parameter begins with zeros: no norm to be in proportion to.
      std::fill(start.begin() + 12480, start.end(), 0.0F);
      Replica run(options, start);
      std::vector<reference::Lamb> references;
      std::vector<std::vector<double>> expected;
      for (const ParameterSegment& p : parameters()) {
        references.push_back({options.betas(0), options.betas(1), options.eps(), p.weight_decay});
        expected.emplace_back(start.begin() + p.offset, start.begin() + p.offset + p.size);
      }
      for (std::int64_t step = 0; step < 20; ++step) {
        const std::vector<float> sums = random(arena, 10 + static_cast<std::uint64_t>(step));
        const StepScalars scalars{.lr = 0.01F * static_cast<float>(1 + step % 3),
                                  .gradient_divisor = 3,
                                  .clip_coefficient = 0.7F,
                                  .step = step};
        run.step(sums, scalars, parameters());
        for (std::size_t k = 0; k < expected.size(); ++k) {
          const ParameterSegment& p = parameters()[k];
          std::vector<double> g(sums.begin() + p.offset, sums.begin() + p.offset + p.size);
          for (double& value : g) value = value / 3.0 * double{0.7F};
          references[k].update(expected[k], g, scalars.lr);
        }
      }
      for (std::size_t k = 0; k < expected.size(); ++k) {
        double largest = 0, difference = 0;
        for (std::size_t i = 0; i < expected[k].size(); ++i) {
          const double found = run.weights[static_cast<std::size_t>(parameters()[k].offset) + i];
          largest = std::max(largest, std::abs(expected[k][i]));
          difference = std::max(difference, std::abs(found - expected[k][i]));
        }
        EXPECT_LE(difference, 1e-5 * largest) << "parameter " << k;
      }
    }
  });
}

// By hand: w = 3, 4 has norm 5; the first step's direction is the sign of the gradient, of norm
// sqrt 2 (but for eps).
TEST(LambTest, TheFirstStepIsInProportionToTheWeights) {
  Replica run(lamb(), {3, 4});
  run.step({0.5F, -2}, {.lr = 0.1F, .step = 0});
  EXPECT_NEAR(run.weights[0], 3 - 0.1 * 5 / std::sqrt(2), 1e-6);
  EXPECT_NEAR(run.weights[1], 4 + 0.1 * 5 / std::sqrt(2), 1e-6);
  // Without weights, or without a direction, the ratio is 1.
  Replica zero(lamb(), {0, 0});
  zero.step({0.5F, -2}, {.lr = 0.1F, .step = 0});
  EXPECT_NEAR(zero.weights[0], -0.1, 1e-6);
  Replica still(lamb(), {3, 4});
  still.step({0, 0}, {.lr = 0.1F, .step = 0});
  EXPECT_EQ(still.weights, (std::vector<float>{3, 4}));
}

TEST(LambTest, BitsDoNotDependOnThreads) {
  for_each_instruction_set([] {
    Replica one(lamb(), random(arena, 1));
    Replica three(lamb(), one.weights, 3);
    for (std::int64_t step = 0; step < 3; ++step) {
      const auto gradients = random(arena, 20 + static_cast<std::uint64_t>(step));
      const StepScalars scalars{
          .lr = 0.1F, .gradient_divisor = 7, .clip_coefficient = 0.5F, .step = step};
      one.step(gradients, scalars, parameters());
      three.step(gradients, scalars, parameters());
    }
    EXPECT_EQ(bits(one.weights), bits(three.weights));
    EXPECT_EQ(bits(one.state[0]), bits(three.state[0]));
    EXPECT_EQ(bits(one.state[1]), bits(three.state[1]));
  });
}

// A norm is of its parameter alone.
TEST(LambTest, AParameterDoesNotChangeItsNeighbour) {
  Replica both(lamb(), random(64, 1));
  Replica alone(lamb(), both.weights);
  const std::vector<float> gradients = random(64, 2);
  const StepScalars scalars{.lr = 0.1F, .step = 0};
  const std::vector<ParameterSegment> two = {{0, 30, 0.01}, {32, 32, 0}};
  both.step(gradients, scalars, two);
  alone.step(gradients, scalars, std::span(two).first(1));
  EXPECT_EQ(bits({both.weights.begin(), both.weights.begin() + 32}),
            bits({alone.weights.begin(), alone.weights.begin() + 32}));
  EXPECT_NE(both.weights[40], alone.weights[40]);
}

TEST(LambTest, AStepThatIsOffWritesNothing) {
  Replica run(lamb(), random(100, 1));
  run.step(random(100, 2), {.lr = 0.1F, .step = 0});
  const auto weights = bits(run.weights);
  const auto state = run.state;
  run.step(std::vector<float>(100, NAN), {.lr = 0.1F, .step = 1, .apply = false}, 0.1);
  EXPECT_EQ(bits(run.weights), weights);
  EXPECT_EQ(run.state, state);
}

TEST(LambTest, OptionsMustBeInRange) {
  EXPECT_THROW(make_optimizer(lamb(1.0)), ConfigError);
  EXPECT_THROW(make_optimizer(lamb(0.9, -0.1)), ConfigError);
  config::Optimizer options;
  options.set_name("lamb");
  EXPECT_EQ(default_weight_decay(options), 0.01);
}

}  // namespace
}  // namespace dtrain
