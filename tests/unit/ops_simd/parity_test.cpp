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

  void expect_close(const Tensor& actual, const nlohmann::json& expected, double tolerance = 1e-6) {
    EXPECT_LE(relative_error(doubles(actual), doubles(matrix(expected))), tolerance);
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

TEST_F(ParityTest, CrossEntropyOfTokens) {
  const nlohmann::json values = parity::read("losses.json");
  const nlohmann::json& one = values["cross_entropy_of_tokens"];
  const std::vector<float> logits = parity::floats(one["logits"]);
  const Shape shape{2, 5, 37};
  const Tensor targets = Tensor::empty({2, 5}, DType::i64, allocator_, "test");
  std::int64_t* target = targets.data<std::int64_t>();
  for (const nlohmann::json& row : one["targets"]) {
    for (const nlohmann::json& token : row) *target++ = token;
  }
  const ops::LossSums sums = ops::cross_entropy(context_, of(logits, shape), targets, {});
  const double sum = one["sum"];
  EXPECT_NEAR(sums.loss, sum, 1e-6 * sum);
  EXPECT_EQ(sums.weight, 9);  // one target is ignored
  const std::vector<float> gradient = parity::floats(one["gradient"]);
  const auto check = [&](const Tensor& dx) {
    EXPECT_EQ(dx.shape(), shape);
    EXPECT_LE(relative_error(doubles(dx), {gradient.begin(), gradient.end()}), 1e-6);
  };
  // Over the logits, but beside those that somebody else holds.
  check(ops::cross_entropy_backward(context_, of(logits, shape), targets, {}, 1));
  const Tensor held = of(logits, shape);
  check(ops::cross_entropy_backward(context_, held, targets, {}, 1));
  EXPECT_EQ(bits(held), bits(of(logits, shape)));
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
  const auto check = [&](const char* name, const Tensor& y, const Tensor& dx,
                         double dx_tolerance = 1e-6) {
    SCOPED_TRACE(name);
    expect_close(y, values["results"][name]["y"]);
    expect_close(dx, values["results"][name]["dx"], dx_tolerance);
  };
  for_each_instruction_set([&] {
    const Tensor relu = ops::relu(context_, x);
    check("relu", relu, ops::relu_backward(context_, relu, dy));
    check("gelu", ops::gelu(context_, x), ops::gelu_backward(context_, x, dy));
    // Where the sigmoid s of its argument is near 1, the slope multiplies the rounding of s (1 -
    // s).
    check("gelu_tanh", ops::gelu_tanh(context_, x), ops::gelu_tanh_backward(context_, x, dy), 5e-6);
    check("silu", ops::silu(context_, x), ops::silu_backward(context_, x, dy));
    const Tensor sigmoid = ops::sigmoid(context_, x);
    check("sigmoid", sigmoid, ops::sigmoid_backward(context_, sigmoid, dy));
    const Tensor tanh = ops::tanh(context_, x);
    check("tanh", tanh, ops::tanh_backward(context_, tanh, dy));
    const Tensor softmax = ops::softmax(context_, x);
    check("softmax", softmax, ops::softmax_backward(context_, softmax, dy));
  });
}

}  // namespace
}  // namespace dtrain
