// Operators, forward and backward, against values that PyTorch computed: see operator_values.py.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "dtrain/tests/parity/values.h"
#include "dtrain/tests/unit/autograd/support.h"

namespace dtrain::parity {
namespace {

using nlohmann::json;

// What an operator is called with: its case's options, and its parameters by name.
struct Call {
  Pass& pass;
  const Value& x;
  const json& options;
  const std::map<std::string, const Parameter*>& parameters;
  const RunningStatistics* statistics;  // of norms that keep some

  const Parameter& parameter(const std::string& name) const { return *parameters.at(name); }
  const Parameter* optional(const std::string& name) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? nullptr : found->second;
  }
  // A parameter as an operand with a gradient of its own.
  Value operand(const std::string& name) const {
    const Parameter& p = parameter(name);
    return pass.record(pass.weight(p), [&p](Pass& backward_pass, const Tensor& dy) {
      backward_pass.parameter_gradient(p, [&](const Tensor& gradient) {
        std::ranges::copy(dy.values<float>(), gradient.values<float>().begin());
      });
    });
  }
  functions::NormWeights norm() const {
    return {parameter("norm_weight"), optional("norm_bias"), 1e-5F};
  }
  functions::LinearWeights linear() const {
    return {parameter("weight"), optional("bias"), ops::WeightOrder::in_out};
  }
  ops::AttentionOptions attention() const {
    return {.heads = options.at("heads"), .causal = options.at("causal")};
  }
  // [N, keys]: 1 from first to last of each sample's `seen`; undefined without that option.
  Tensor key_mask(std::int64_t keys) const {
    if (!options.contains("seen")) return {};
    const json& seen = options.at("seen");
    const Tensor mask = Tensor::empty({std::ssize(seen), keys}, DType::u8,
                                      pass.context().allocator(), "parity mask");
    std::uint8_t* row = mask.data<std::uint8_t>();
    for (const json& range : seen) {
      for (std::int64_t key = 0; key < keys; ++key) {
        row[key] = key >= range[0].get<std::int64_t>() && key < range[1].get<std::int64_t>();
      }
      row += keys;
    }
    return mask;
  }
  ops::Pool2dOptions pool() const {
    return {options.at("kernel"), options.at("stride"), options.value("padding", 0)};
  }
};

using Operator = std::function<Value(const Call&)>;

const std::map<std::string, Operator>& operators() {
  namespace f = functions;
  static const std::map<std::string, Operator> table{
      {"linear",
       [](const Call& c) {
         return f::linear(c.pass, c.x, c.parameter("weight"), c.optional("bias"));
       }},
      {"linear_in_out",
       [](const Call& c) {
         return f::linear(c.pass, c.x, c.parameter("weight"), c.optional("bias"),
                          ops::WeightOrder::in_out);
       }},
      {"conv2d",
       [](const Call& c) {
         return f::conv2d(c.pass, c.x, c.parameter("weight"), c.optional("bias"),
                          {.stride = c.options.value("stride", 1),
                           .padding = c.options.value("padding", 0),
                           .dilation = c.options.value("dilation", 1),
                           .groups = c.options.value("groups", 1)});
       }},
      {"batch_norm",
       [](const Call& c) {
         return f::batch_norm(c.pass, c.x, c.parameter("weight"), c.parameter("bias"),
                              *c.statistics, c.options.at("epsilon"));
       }},
      {"batch_norm_relu",
       [](const Call& c) {
         return f::batch_norm_relu(c.pass, c.x, c.parameter("weight"), c.parameter("bias"),
                                   *c.statistics, c.options.at("epsilon"));
       }},
      {"batch_norm_add_relu",
       [](const Call& c) {
         return f::batch_norm_add_relu(c.pass, c.x, c.operand("residual"), c.parameter("weight"),
                                       c.parameter("bias"), *c.statistics, c.options.at("epsilon"));
       }},
      {"group_norm",
       [](const Call& c) {
         return f::group_norm(c.pass, c.x, c.parameter("weight"), c.parameter("bias"),
                              c.options.at("groups"), c.options.at("epsilon"));
       }},
      {"attention",
       [](const Call& c) { return f::attention(c.pass, c.x, c.attention(), 0, RandomSite{}); }},
      {"cross_attention",
       [](const Call& c) {
         const Value keys = c.operand("keys");
         ops::AttentionOptions options = c.attention();
         options.key_mask = c.key_mask(keys.shape()[1]);
         return f::attention(c.pass, c.x, keys, c.operand("values"), options);
       }},
      {"layer_norm", [](const Call& c) { return f::layer_norm(c.pass, c.x, c.norm()); }},
      {"rms_norm",
       [](const Call& c) {
         return f::rms_norm(c.pass, c.x, c.parameter("weight"), c.options.at("epsilon"));
       }},
      {"embedding",
       [](const Call& c) {
         return f::embedding(c.pass, c.x, c.parameter("table"), c.optional("positions"));
       }},
      {"layer_norm_linear",
       [](const Call& c) { return f::layer_norm_linear(c.pass, c.x, c.norm(), c.linear()); }},
      {"linear_residual",
       [](const Call& c) {
         return f::linear_residual(c.pass, c.x, c.linear(), c.operand("residual"));
       }},
      {"gelu_tanh_linear_residual",
       [](const Call& c) {
         return f::gelu_tanh_linear_residual(c.pass, c.x, c.linear(), c.operand("residual"));
       }},
      {"transpose",
       [](const Call& c) {
         return f::transpose(c.pass, c.x, c.options.at("a"), c.options.at("b"));
       }},
      {"concat",
       [](const Call& c) {
         const std::vector<Value> parts{c.x, c.operand("other")};
         return f::concat(c.pass, parts, c.options.at("axis"));
       }},
      {"slice",
       [](const Call& c) {
         return f::slice(c.pass, c.x, c.options.at("axis"), c.options.at("first"),
                         c.options.at("last"));
       }},
      {"relu", [](const Call& c) { return f::relu(c.pass, c.x); }},
      {"gelu_tanh", [](const Call& c) { return f::gelu_tanh(c.pass, c.x); }},
      {"silu", [](const Call& c) { return f::silu(c.pass, c.x); }},
      {"gelu", [](const Call& c) { return f::gelu(c.pass, c.x); }},
      {"sigmoid", [](const Call& c) { return f::sigmoid(c.pass, c.x); }},
      {"tanh", [](const Call& c) { return f::tanh(c.pass, c.x); }},
      {"softmax", [](const Call& c) { return f::softmax(c.pass, c.x); }},
      {"max_pool2d", [](const Call& c) { return f::max_pool2d(c.pass, c.x, c.pool()); }},
      {"avg_pool2d", [](const Call& c) { return f::avg_pool2d(c.pass, c.x, c.pool()); }},
      {"adaptive_avg_pool2d",
       [](const Call& c) {
         return f::adaptive_avg_pool2d(c.pass, c.x, c.options.at("height"), c.options.at("width"));
       }},
      {"add", [](const Call& c) { return f::add(c.pass, c.x, c.operand("other")); }},
      {"multiply", [](const Call& c) { return f::multiply(c.pass, c.x, c.operand("other")); }},
  };
  return table;
}

// One operator over its parameters.
class OneOperator final : public Module {
 public:
  explicit OneOperator(const json& one) : operator_(operators().at(one.at("op"))), case_(one) {
    for (const json& parameter : one.at("parameters")) {
      const std::string name = parameter.at("name");
      parameters_[name] =
          &add_parameter(name, shape_of(parameter.at("shape")), InitScheme::zeros, 1);
    }
    if (one.at("op").get<std::string>().starts_with("batch_norm")) {
      const Shape& channels = parameters_.at("weight")->shape;
      statistics_ = &add_running_statistics(add_buffer("running_mean", channels, 0),
                                            add_buffer("running_var", channels, 1), 0.1F);
    }
  }

  Value forward(Pass& pass, const Value& x) const override {
    return operator_({pass, x, case_.at("options"), parameters_, statistics_});
  }
  const std::map<std::string, const Parameter*>& parameters() const { return parameters_; }

 private:
  const Operator& operator_;
  const json& case_;
  std::map<std::string, const Parameter*> parameters_;
  const RunningStatistics* statistics_ = nullptr;
};

std::vector<float> plain_values(OpContext& context, const Tensor& x) {
  const Tensor plain = ops::to_layout(context, x, Layout{});
  return {plain.values<float>().begin(), plain.values<float>().end()};
}

class Operators : public ::testing::Test {
 protected:
  // Runs the case, checks y and all gradients, and returns the largest errors.
  TensorError check(const json& one, double tolerance) {
    auto made = std::make_unique<OneOperator>(one);
    const OneOperator& module = *made;
    Fixture f(std::move(made));
    std::uint32_t seed = 2;
    for (const json& parameter : one.at("parameters")) {
      const auto weight = f.arena.weight(*module.parameters().at(parameter.at("name")));
      std::ranges::copy(hashed_values(std::ssize(weight), seed++), weight.begin());
    }
    const std::vector<std::int64_t> positions = Fixture::positions_of(shape_of(one.at("x"))[0]);
    Pass pass(f.context, f.memory(), {.positions = positions});
    std::vector<float> dx;
    const std::int64_t vocabulary = one.at("options").value("vocabulary", std::int64_t{0});
    const Value input =
        vocabulary > 0
            ? pass.input(tokens(f, shape_of(one.at("x")), vocabulary))
            : pass.record(
                  filled(f, shape_of(one.at("x")), 1, one.at("options").value("scale", 1.0F)),
                  [&](Pass&, const Tensor& gradient) { dx = plain_values(f.context, gradient); });
    const Value y = module.forward(pass, input);

    TensorError worst;
    const auto expect_close = [&](const std::string& what, const std::vector<float>& actual,
                                  const json& expected) {
      const TensorError error = error_of(actual, Packed(expected));
      EXPECT_LE(error.largest, tolerance) << what;
      worst = {std::max(worst.largest, error.largest), std::max(worst.rms, error.rms)};
    };
    expect_close("y", plain_values(f.context, y.tensor), one.at("y"));
    pass.backward(y, filled(f, y.shape(), 99));
    const json& gradients = one.at("gradients");
    EXPECT_EQ(gradients.size(), (vocabulary > 0 ? 0 : 1) + module.parameters().size());
    if (vocabulary == 0) expect_close("gradient of x", dx, gradients.at("x"));
    for (const auto& [name, parameter] : module.parameters()) {
      const auto gradient = f.gradient(*parameter);
      expect_close("gradient of " + name, {gradient.begin(), gradient.end()}, gradients.at(name));
    }
    return worst;
  }

 private:
  static Tensor filled(Fixture& f, const Shape& shape, std::uint32_t seed, float scale = 1) {
    const Tensor x = Tensor::empty(shape, DType::f32, f.allocator, "parity");
    std::ranges::transform(hashed_values(x.elements(), seed), x.values<float>().begin(),
                           [scale](float value) { return scale * value; });
    return x;
  }
  static Tensor tokens(Fixture& f, const Shape& shape, std::int64_t vocabulary) {
    const Tensor x = Tensor::empty(shape, DType::i32, f.allocator, "parity");
    std::uint32_t index = 0;
    for (std::int32_t& token : x.values<std::int32_t>()) {
      token = static_cast<std::int32_t>(hashed_integer(index++, 1, vocabulary));
    }
    return x;
  }
};

TEST_F(Operators, MatchPyTorch) {
  const json values = read("operators.json");
  ASSERT_GE(values.at("cases").size(), 60U);
  int number = 0;
  std::pair<double, std::string> worst;  // but Winograd's
  for (const json& one : values.at("cases")) {
    SCOPED_TRACE(fmt::format("{} {} of {}", one.at("op").get<std::string>(),
                             one.at("options").dump(), one.at("x").dump()));
    const bool winograd = one.at("options").value("winograd", false);
    const TensorError error = check(one, winograd ? 1e-4 : 1e-5);
    const std::string shown = fmt::format("{:.1e}, rms {:.1e}", error.largest, error.rms);
    RecordProperty(fmt::format("{}_{}", one.at("op").get<std::string>(), ++number), shown);
    if (winograd) {
      fmt::print("winograd of {}: error {}\n", one.at("x").dump(), shown);
    } else {
      worst = std::max(worst, {error.largest, one.at("op").get<std::string>()});
    }
  }
  fmt::print("largest error of {} others: {:.1e}, of {}\n", number, worst.first, worst.second);
}

// Nothing is called by a name that no value file has.
TEST_F(Operators, AllHaveValues) {
  const json values = read("operators.json");
  for (const auto& [name, call] : operators()) {
    EXPECT_TRUE(std::ranges::any_of(values.at("cases"), [&](const json& one) {
      return one.at("op") == name;
    })) << name;
  }
}

}  // namespace
}  // namespace dtrain::parity
