// Operators of transformers against values that PyTorch computed: see
// tests/parity/make_gpt_values.py.
#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/attention.h"
#include "dtrain/core/ops/embedding.h"
#include "dtrain/core/ops/layer_norm.h"
#include "dtrain/tests/parity/values.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class SequenceParityTest : public OpsTest {
 protected:
  const nlohmann::json values = parity::read("gpt_operators.json");

  Tensor tensor(const nlohmann::json& list, const Shape& shape) {
    return of(parity::floats(list), shape);
  }
  static Shape shape_of(const nlohmann::json& one) {
    const auto sizes = one["shape"].get<std::vector<std::int64_t>>();
    return Shape(sizes);
  }
  static void expect_close(const Tensor& actual, const nlohmann::json& expected) {
    const std::vector<float> floats = parity::floats(expected);
    EXPECT_LE(relative_error(doubles(actual), {floats.begin(), floats.end()}), 1e-5);
  }
};

TEST_F(SequenceParityTest, Norms) {
  for (const char* name : {"layer_norm", "rms_norm"}) {
    SCOPED_TRACE(name);
    const bool centered = std::string(name) == "layer_norm";
    const nlohmann::json& one = values[name];
    const Shape shape = shape_of(one), columns{shape[-1]};
    const Tensor x = tensor(one["x"], shape), dy = tensor(one["dy"], shape);
    const Tensor gamma = tensor(one["weight"], columns);
    ops::RowNormGradients d{.gamma = random(columns, 0, 1), .beta = {}};
    ops::RowNormOutput out;
    if (centered) {
      d.beta = random(columns, 0, 1);
      out = ops::layer_norm(context_, x, gamma, tensor(one["bias"], columns), 1e-5F);
    } else {
      out = ops::rms_norm(context_, x, gamma, 1e-5F);
    }
    expect_close(out.y, one["y"]);
    expect_close((centered ? ops::layer_norm_backward : ops::rms_norm_backward)(
                     context_, x, dy, gamma, out.statistics, d, {}),
                 one["dx"]);
    expect_close(d.gamma, one["dweight"]);
    if (centered) expect_close(d.beta, one["dbias"]);
  }
}

TEST_F(SequenceParityTest, Activations) {
  const nlohmann::json& silu = values["silu"];
  const Tensor x = tensor(silu["x"], shape_of(silu)), dy = tensor(silu["dy"], shape_of(silu));
  expect_close(ops::silu(context_, x), silu["y"]);
  expect_close(ops::silu_backward(context_, x, dy), silu["dx"]);
  const nlohmann::json& gelu = values["gelu_tanh"];
  const Tensor u = tensor(gelu["x"], shape_of(gelu)), du = tensor(gelu["dy"], shape_of(gelu));
  expect_close(ops::gelu_tanh(context_, u), gelu["y"]);
  expect_close(ops::gelu_tanh_backward(context_, u, du), gelu["dx"]);
}

TEST_F(SequenceParityTest, Embedding) {
  const nlohmann::json& one = values["embedding"];
  const Shape shape = shape_of(one);
  const auto ids = one["tokens"].get<std::vector<std::int32_t>>();
  const Tensor tokens = Tensor::empty({shape[0], shape[1]}, DType::i32, allocator_, "test");
  std::ranges::copy(ids, tokens.values<std::int32_t>().begin());
  const Tensor table = tensor(one["table"], {9, shape[2]});
  expect_close(ops::embedding(context_, tokens, table), one["y"]);
  const Tensor dtable = random({9, shape[2]}, 0, 1);
  ops::embedding_backward(context_, tokens, tensor(one["dy"], shape), dtable, false);
  expect_close(dtable, one["dtable"]);
}

TEST_F(SequenceParityTest, Attention) {
  ASSERT_EQ(values["attention"].size(), 4U);
  for (const nlohmann::json& one : values["attention"]) {
    const Shape shape = shape_of(one);
    const std::int64_t keys = one["keys"];
    SCOPED_TRACE(to_string(shape) + " over " + std::to_string(keys));
    const Shape of_keys{shape[0], keys, shape[2]};
    const Tensor q = tensor(one["q"], shape), dy = tensor(one["dy"], shape);
    const Tensor k = tensor(one["k"], of_keys), v = tensor(one["v"], of_keys);
    ops::AttentionOptions options;
    options.heads = one["heads"];
    options.causal = one["causal"];
    if (one["masked"]) {
      options.key_mask = Tensor::empty({shape[0], keys}, DType::u8, allocator_, "test");
      std::ranges::copy(one["mask"].get<std::vector<std::uint8_t>>(),
                        options.key_mask.values<std::uint8_t>().begin());
    }
    const ops::AttentionOutput out = ops::attention(context_, q, k, v, options);
    expect_close(out.y, one["y"]);
    const ops::AttentionGradients d = ops::attention_backward(context_, q, k, v, out, dy, options);
    expect_close(d.dq, one["dq"]);
    expect_close(d.dk, one["dk"]);
    expect_close(d.dv, one["dv"]);
  }
}

}  // namespace
}  // namespace dtrain
