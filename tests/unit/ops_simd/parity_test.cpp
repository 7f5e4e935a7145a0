// Losses and activations against values that PyTorch computed: see
// tests/parity/core_values.py.
#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/loss.h"
#include "dtrain/tests/parity/values.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class ParityTest : public OpsTest {
 protected:
  // A matrix of the file.
  Tensor matrix(const nlohmann::json& rows) {
    return of(parity::floats(rows),
              {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  }

  void expect_close(const Tensor& actual, const nlohmann::json& expected) {
    EXPECT_LE(relative_error(doubles(actual), doubles(matrix(expected))), 1e-6);
  }
};

TEST_F(ParityTest, CrossEntropy) {
  const nlohmann::json values = parity::read("losses.json");
  const Tensor logits = matrix(values["logits"]);
  const Tensor targets = labels(values["targets"].get<std::vector<std::int64_t>>());
  ASSERT_EQ(values["cross_entropy"].size(), 6U);
  for (const nlohmann::json& one : values["cross_entropy"]) {
    SCOPED_TRACE(one["label_smoothing"].dump() + " " + one["weighted"].dump());
    ops::CrossEntropyOptions options;
    options.label_smoothing = one["label_smoothing"];
    if (one["weighted"]) {
      const std::vector<float> weights = parity::floats(values["class_weights"]);
      options.class_weights = of(weights, {static_cast<std::int64_t>(weights.size())});
    }
    const ops::LossSums sums = ops::cross_entropy(context_, logits, targets, options);
    const double sum = one["sum"], mean = one["mean"];
    EXPECT_NEAR(sums.loss, sum, 1e-6 * sum);
    EXPECT_NEAR(sums.loss / sums.weight, mean, 1e-7 * mean);
    expect_close(ops::cross_entropy_backward(context_, logits, targets, options, 1),
                 one["gradient"]);
  }
}

TEST_F(ParityTest, ElementLosses) {
  const nlohmann::json values = parity::read("losses.json");
  const Tensor x = matrix(values["logits"]);
  const Tensor t = matrix(values["probabilities"]);
  const double mse = values["mse"]["sum"], bce = values["bce"]["sum"];
  EXPECT_NEAR(ops::mse(context_, x, t).loss, mse, 1e-6 * mse);
  EXPECT_NEAR(ops::bce_with_logits(context_, x, t).loss, bce, 1e-6 * bce);
  expect_close(ops::mse_backward(context_, x, t, 1), values["mse"]["gradient"]);
  expect_close(ops::bce_with_logits_backward(context_, x, t, 1), values["bce"]["gradient"]);
}

TEST_F(ParityTest, Activations) {
  const nlohmann::json values = parity::read("activations.json");
  const Tensor x = matrix(values["x"]);
  const Tensor dy = matrix(values["dy"]);
  const auto check = [&](const char* name, const Tensor& y, const Tensor& dx) {
    SCOPED_TRACE(name);
    expect_close(y, values["results"][name]["y"]);
    expect_close(dx, values["results"][name]["dx"]);
  };
  const Tensor relu = ops::relu(context_, x);
  check("relu", relu, ops::relu_backward(context_, relu, dy));
  check("gelu", ops::gelu(context_, x), ops::gelu_backward(context_, x, dy));
  const Tensor sigmoid = ops::sigmoid(context_, x);
  check("sigmoid", sigmoid, ops::sigmoid_backward(context_, sigmoid, dy));
  const Tensor tanh = ops::tanh(context_, x);
  check("tanh", tanh, ops::tanh_backward(context_, tanh, dy));
  const Tensor softmax = ops::softmax(context_, x);
  check("softmax", softmax, ops::softmax_backward(context_, softmax, dy));
}

}  // namespace
}  // namespace dtrain
