// Optimizers against values that PyTorch computed: see tests/parity/core_values.py.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/tests/parity/values.h"
#include "dtrain/tests/unit/optim/replica.h"

namespace dtrain {
namespace {

void expect_close(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
    difference = std::max(difference, std::abs(double{actual[i]} - expected[i]));
  }
  EXPECT_LE(difference, 1e-6 * largest);
}

TEST(OptimizerParityTest, TwentyStepsMatchPyTorch) {
  const nlohmann::json values = parity::read("optimizers.json");
  const std::vector<float> rates = parity::floats(values["rates"]);
  ASSERT_GE(values["cases"].size(), 14U);
  for (const nlohmann::json& one : values["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>() + " " + one["options"].dump());
    const nlohmann::json& given = one["options"];
    config::Optimizer options;
    options.set_name(one["name"]);
    options.set_momentum(given.value("momentum", 0.0));
    options.set_dampening(given.value("dampening", 0.0));
    options.set_nesterov(given.value("nesterov", false));
    if (given.contains("eps")) options.set_eps(given["eps"]);
    if (given.contains("betas")) {
      for (const double beta : given["betas"]) options.add_betas(beta);
    }
    Replica run(options, parity::floats(values["weights"]));
    for (std::size_t step = 0; step < rates.size(); ++step) {
      run.step(parity::floats(values["gradients"][step]),
               {.lr = rates[step], .step = static_cast<std::int64_t>(step)},
               given.value("weight_decay", 0.0));
      expect_close(run.weights, parity::floats(one["weights"][step]));
    }
    const auto names = run.optimizer->state_names();
    ASSERT_EQ(names.size(), one["state"].size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      expect_close(run.state[i], parity::floats(one["state"][std::string(names[i])]));
    }
  }
}

}  // namespace
}  // namespace dtrain
