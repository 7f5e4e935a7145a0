#include "dtrain/core/optim/optimizer.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/optim/gradient_norm.h"
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

config::Optimizer sgd(double momentum = 0, double dampening = 0, bool nesterov = false) {
  config::Optimizer options;
  options.set_momentum(momentum);
  options.set_dampening(dampening);
  options.set_nesterov(nesterov);
  return options;
}

config::Optimizer adam(const std::string& name, double beta1 = 0.9, double beta2 = 0.999,
                       double eps = 1e-8) {
  config::Optimizer options;
  options.set_name(name);
  options.add_betas(beta1);
  options.add_betas(beta2);
  options.set_eps(eps);
  return options;
}

const std::vector<config::Optimizer>& all_optimizers() {
  static const std::vector<config::Optimizer> all = {sgd(),
                                                     sgd(0.9),
                                                     sgd(0.9, 0.3),
                                                     sgd(0.8, 0, true),
                                                     adam("adam"),
                                                     adam("adamw"),
                                                     adam("adamw", 0.7, 0.9, 1e-3)};
  return all;
}

// One weight's update in double.
std::function<double(double, double, double)> reference_of(const config::Optimizer& options,
                                                           double weight_decay) {
  if (options.name() == "sgd") {
    return [state = reference::Sgd{options.momentum(), options.dampening(), weight_decay,
                                   options.nesterov()}](double w, double g, double lr) mutable {
      return state.update(w, g, lr);
    };
  }
  return [state = reference::Adam{options.betas(0), options.betas(1), options.eps(), weight_decay,
                                  options.name() == "adamw"}](
             double w, double g, double lr) mutable { return state.update(w, g, lr); };
}

TEST(OptimizerTest, TwentyStepsMatchTheDoubleReference) {
  for_each_instruction_set([] {
    for (const config::Optimizer& options : all_optimizers()) {
      for (const double decay : {0.0, 0.05}) {
        SCOPED_TRACE(options.ShortDebugString() + " decay " + std::to_string(decay));
        constexpr std::size_t n = 101;
        Replica run(options, random(n, 1));
        std::vector<double> expected(run.weights.begin(), run.weights.end());
        std::vector<std::function<double(double, double, double)>> references(
            n, reference_of(options, decay));
        for (std::int64_t step = 0; step < 20; ++step) {
          const std::vector<float> sums = random(n, 10 + static_cast<std::uint64_t>(step));
          const StepScalars scalars{.lr = 0.01F * static_cast<float>(1 + step % 3),
                                    .gradient_divisor = 3,
                                    .clip_coefficient = 0.7F,
                                    .step = step};
          run.step(sums, scalars, decay);
          for (std::size_t i = 0; i < n; ++i) {
            const double g = sums[i] / 3.0 * 0.7F;
            expected[i] = references[i](expected[i], g, scalars.lr);
          }
        }
        double largest = 0, difference = 0;
        for (std::size_t i = 0; i < n; ++i) {
          largest = std::max(largest, std::abs(expected[i]));
          difference = std::max(difference, std::abs(run.weights[i] - expected[i]));
        }
        EXPECT_LE(difference, 1e-6 * largest);
      }
    }
  });
}

TEST(OptimizerTest, BitsDependNeitherOnThreadsNorOnTheCut) {
  const std::int64_t n = 3 * 4096 + 57;
  for_each_instruction_set([&] {
    for (const config::Optimizer& options : all_optimizers()) {
      SCOPED_TRACE(options.ShortDebugString());
      Replica one(options, random(static_cast<std::size_t>(n), 1));
      Replica three(options, one.weights, 3);
      const std::vector<ParameterSegment> whole = {{0, n, 0.01}};
      const std::vector<ParameterSegment> cut = {{0, 1, 0.01},
                                                 {1, 5000, 0.01},
                                                 {5001, 0, 0.01},
                                                 {5001, 4096, 0.01},
                                                 {9097, n - 9097, 0.01}};
      for (std::int64_t step = 0; step < 3; ++step) {
        const auto gradients = random(static_cast<std::size_t>(n), 20 + step);
        const StepScalars scalars{
            .lr = 0.1F, .gradient_divisor = 7, .clip_coefficient = 0.5F, .step = step};
        one.step(gradients, scalars, whole);
        three.step(gradients, scalars, cut);
      }
      EXPECT_EQ(bits(one.weights), bits(three.weights));
      for (std::size_t i = 0; i < one.state.size(); ++i) {
        EXPECT_EQ(bits(one.state[i]), bits(three.state[i]));
      }
    }
  });
}

TEST(OptimizerTest, AStepThatIsOffWritesNothing) {
  for (const config::Optimizer& options : all_optimizers()) {
    Replica run(options, random(100, 1));
    run.step(random(100, 2), {.lr = 0.1F, .step = 0});
    const auto weights = bits(run.weights);
    const auto state = run.state;
    run.step(std::vector<float>(100, NAN), {.lr = 0.1F, .step = 1, .apply = false}, 0.1);
    EXPECT_EQ(bits(run.weights), weights);
    EXPECT_EQ(run.state, state);
  }
}

TEST(OptimizerTest, LeavesElementsOutsideTheSegmentsAlone) {
  for (const config::Optimizer& options : all_optimizers()) {
    Replica run(options, std::vector<float>(64, 1));
    const std::vector<ParameterSegment> segments = {{3, 10, 0}, {20, 30, 0.5}};
    run.step(std::vector<float>(64, 1), {.lr = 0.1F, .step = 0}, segments);
    for (std::size_t i = 0; i < 64; ++i) {
      const bool inside = (i >= 3 && i < 13) || (i >= 20 && i < 50);
      EXPECT_EQ(run.weights[i] != 1, inside) << i;
    }
  }
}

TEST(OptimizerTest, ResumingFromSavedStateGivesTheSameBits) {
  for (const config::Optimizer& options : all_optimizers()) {
    Replica run(options, random(50, 1));
    std::unique_ptr<Replica> resumed;
    for (std::int64_t step = 0; step < 10; ++step) {
      if (step == 4) {
        resumed = std::make_unique<Replica>(options, run.weights);
        resumed->state = run.state;
      }
      const auto gradients = random(50, 30 + static_cast<std::uint64_t>(step));
      const StepScalars scalars{.lr = 0.1F, .step = step};
      run.step(gradients, scalars, 0.01);
      if (resumed) resumed->step(gradients, scalars, 0.01);
    }
    EXPECT_EQ(bits(run.weights), bits(resumed->weights));
  }
}

TEST(OptimizerTest, TheFirstBufferIsTheGradientWhateverTheDampening) {
  Replica run(sgd(0.9, 0.5), {1, 1});
  run.step({2, -4}, {.lr = 0.25F, .step = 0});
  EXPECT_EQ(run.state[0], (std::vector<float>{2, -4}));
  EXPECT_EQ(run.weights, (std::vector<float>{0.5F, 2}));
  run.step({2, -4}, {.lr = 0.25F, .step = 1});
  EXPECT_EQ(run.state[0], (std::vector<float>{0.9F * 2 + 1, -(0.9F * 4 + 2)}));
}

TEST(OptimizerTest, GradientsAreDividedExactlyAndThenClipped) {
  Replica run(sgd(), std::vector<float>(1000, 0));
  const std::vector<float> sums = random(1000, 3);
  run.step(sums, {.lr = 1, .gradient_divisor = 49, .clip_coefficient = 0.3F, .step = 0});
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(run.weights[i], -(sums[i] / 49.0F * 0.3F));
}

// Case C042: the norm that is clipped is that of the unscaled gradient.
TEST(OptimizerTest, LossScaleDoesNotChangeAClippedStep) {
  for (const float scale : {1.0F, 65536.0F}) {
    Replica run(sgd(), {0});
    const std::vector<float> sums = {-9 * scale};
    const std::vector<ParameterRange> parameters = {{0, 1}};
    const double norm = std::sqrt(squared_norm(sums, parameters, run.pool)) / scale;
    EXPECT_DOUBLE_EQ(norm, 9);
    run.step(sums, {.lr = 0.1F,
                    .gradient_divisor = scale,
                    .clip_coefficient = clip_coefficient(norm, 1),
                    .step = 0});
    EXPECT_NEAR(run.weights[0], 0.1, 1e-5);
  }
}

TEST(OptimizerTest, NamesItsState) {
  const auto names = [](const config::Optimizer& options) {
    const auto optimizer = make_optimizer(options);
    const auto all = optimizer->state_names();
    return std::vector<std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(names(sgd()), std::vector<std::string>{});
  EXPECT_EQ(names(sgd(0.9)), std::vector<std::string>{"momentum_buffer"});
  EXPECT_EQ(names(adam("adam")), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
}

TEST(OptimizerTest, RejectsOptionsThatDoNotGoTogether) {
  EXPECT_THROW(make_optimizer(sgd(0, 0, true)), ConfigError);
  EXPECT_THROW(make_optimizer(sgd(0.9, 0.1, true)), ConfigError);
  EXPECT_THROW(make_optimizer(adam("adam", 1.0)), ConfigError);
  EXPECT_THROW(make_optimizer(adam("adamw", 0.9, -0.1)), ConfigError);
  EXPECT_THROW(make_optimizer(adam("adamm")), ConfigError);
  config::Optimizer three = adam("adam");
  three.add_betas(0.5);
  EXPECT_THROW(make_optimizer(three), ConfigError);
  config::Optimizer defaults;
  defaults.set_name("adam");
  EXPECT_NO_THROW(make_optimizer(defaults));
}

TEST(OptimizerTest, ChecksItsBlocks) {
  Replica run(sgd(0.9), std::vector<float>(10));
  EXPECT_THROW(run.step(std::vector<float>(9), {.step = 0}), InternalError);
  const std::vector<ParameterSegment> outside = {{5, 6, 0}};
  EXPECT_THROW(run.step(std::vector<float>(10), {.step = 0}, outside), InternalError);
  run.state.clear();
  EXPECT_THROW(run.step(std::vector<float>(10), {.step = 0}), InternalError);
}

TEST(OptimizerTest, WeightDecayDefaultsAsInPyTorch) {
  EXPECT_EQ(default_weight_decay(sgd()), 0);
  EXPECT_EQ(default_weight_decay(adam("adam")), 0);
  EXPECT_EQ(default_weight_decay(adam("adamw")), 0.01);
  config::Optimizer given = adam("adamw");
  given.set_weight_decay(0);
  EXPECT_EQ(default_weight_decay(given), 0);
}

}  // namespace
}  // namespace dtrain
