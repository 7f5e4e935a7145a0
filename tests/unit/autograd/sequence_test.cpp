// The functions of transformers on the tape, and GPT-2 as a whole.
#include <array>
#include <cmath>

#include "support.h"

#include "dtrain/models/gpt.h"

namespace dtrain {
namespace {

config::Gpt gpt_options(double dropout) {
  config::Gpt options;
  options.set_layers(2);
  options.set_width(12);
  options.set_heads(3);
  options.set_context(7);
  options.set_vocabulary(11);
  options.set_dropout(dropout);
  return options;
}

std::unique_ptr<Gpt> gpt(double dropout = 0) {
  return std::make_unique<Gpt>(gpt_options(dropout),
                               ModelInput{.shape = {7}, .classes = 11, .dtype = DType::i32});
}

// A pass over tokens; weights are made larger than at first, so that all parts matter.
class Sequences {
 public:
  explicit Sequences(std::unique_ptr<Module> model, int threads = 1)
      : fixture(std::move(model)), context(fixture.allocator, threads) {
    context.bind_to_this_thread();
    for (const Parameter* p : fixture.layout.parameters()) {
      if (p->norm_or_bias) continue;
      for (float& value : fixture.arena.weight(*p)) value *= 10;
    }
    std::ranges::fill(fixture.gradients, 0.0F);
    fixture.context.bind_to_this_thread();
  }

  std::vector<float> forward(const std::vector<std::int32_t>& tokens, std::int64_t samples,
                             PassOptions options, bool backward) {
    std::vector<std::int32_t> copy = tokens;
    const std::vector<std::int64_t> positions = Fixture::positions_of(samples);
    if (options.positions.empty()) options.positions = positions;
    options.key = RandomKey(7);
    context.bind_to_this_thread();
    Pass pass(context, fixture.memory(), options);
    const Shape shape{samples, static_cast<std::int64_t>(tokens.size()) / samples};
    const Value y = fixture.model->forward(pass, pass.input(Tensor::wrap(std::span(copy), shape)));
    const std::vector<float> output(y.tensor.values<float>().begin(),
                                    y.tensor.values<float>().end());
    if (backward) pass.backward(y, fixture.output_gradient(y.tensor, 99));
    return output;
  }

  Fixture fixture;
  OpContext context;
};

std::vector<std::int32_t> some_tokens(std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>(i * i * 7 % 11);
  return tokens;
}

class GptGradients : public testing::TestWithParam<double> {};

TEST_P(GptGradients, MatchDifferencesAlongRandomDirections) {
  Sequences sequences(gpt(GetParam()));
  Fixture& f = sequences.fixture;
  const std::vector<std::int32_t> tokens = some_tokens(21);
  sequences.forward(tokens, 3, {.training = true}, true);
  const std::vector<float> gradients = f.gradients;
  const std::vector<float> dy = numbers(21 * 11, 99);
  const auto objective = [&] {
    const std::vector<float> y = sequences.forward(tokens, 3, {.training = true}, false);
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += static_cast<double>(dy[i]) * y[i];
    return sum;
  };
  for (const Parameter* p : f.layout.parameters()) {
    const auto weight = f.arena.weight(*p);
    const std::vector<float> before(weight.begin(), weight.end());
    const std::vector<float> direction = numbers(p->elements(), 300);
    double norm = 0, slope = 0, magnitude = 0;
    for (const float d : direction) norm += static_cast<double>(d) * d;
    norm = std::sqrt(norm);
    const double step = 1.0 / 512;
    const auto at = [&](double sign) {
      for (std::size_t i = 0; i < before.size(); ++i) {
        weight[i] = static_cast<float>(before[i] + sign * step * direction[i] / norm);
      }
      return objective();
    };
    const double above = at(1), below = at(-1);
    std::ranges::copy(before, weight.begin());
    for (std::size_t i = 0; i < direction.size(); ++i) {
      const double part = static_cast<double>(gradients[p->offset + i]) * direction[i] / norm;
      slope += part;
      magnitude += std::abs(part);
    }
    EXPECT_NEAR((above - below) / (2 * step), slope, 3e-3 * (1 + magnitude)) << p->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Dropout, GptGradients, testing::Values(0.0, 0.3));

TEST(Gpt, AccumulatedGradientsAreTheSumOverMicroBatches) {
  for (const double dropout : {0.0, 0.3}) {
    Sequences sequences(gpt(dropout));
    Fixture& f = sequences.fixture;
    const std::vector<std::int32_t> a = some_tokens(14), b(14, 3);
    sequences.forward(a, 2, {}, true);
    const std::vector<float> of_a = f.gradients;
    sequences.forward(b, 2, {}, true);
    const std::vector<float> of_b = f.gradients;
    sequences.forward(a, 2, {}, true);
    sequences.forward(b, 2, {.accumulate = true}, true);
    float largest = 0;
    for (const float value : f.gradients) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      EXPECT_NEAR(f.gradients[i], of_a[i] + of_b[i], 2e-6 * largest) << i;
    }
  }
}

TEST(Gpt, FinishesEachParameterOnceAndTheTiedHeadLast) {
  Sequences sequences(gpt());
  std::vector<int> finished;
  sequences.forward(some_tokens(7), 1, {.finished = [&](int p) { finished.push_back(p); }}, true);
  std::vector<int> sorted = finished;
  std::ranges::sort(sorted);
  ASSERT_EQ(sorted.size(), sequences.fixture.layout.parameters().size());
  for (std::size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], static_cast<int>(i));
  EXPECT_EQ(sequences.fixture.layout.parameters()[finished.back()]->name, "wte.weight");
}

TEST(Gpt, TokensSeeEarlierTokensOnly) {
  Sequences sequences(gpt());
  std::vector<std::int32_t> tokens = some_tokens(7);
  const std::vector<float> before = sequences.forward(tokens, 1, {.training = false}, false);
  tokens[4] = (tokens[4] + 1) % 11;
  const std::vector<float> after = sequences.forward(tokens, 1, {.training = false}, false);
  for (std::size_t t = 0; t < 7; ++t) {
    const bool same =
        std::equal(before.begin() + t * 11, before.begin() + (t + 1) * 11, after.begin() + t * 11);
    EXPECT_EQ(same, t < 4) << t;
  }
}

TEST(Gpt, ShorterSequencesGiveTheSameLogits) {
  Sequences sequences(gpt());
  const std::vector<std::int32_t> tokens = some_tokens(7);
  const std::vector<float> whole = sequences.forward(tokens, 1, {.training = false}, false);
  const std::vector<float> part =
      sequences.forward({tokens.begin(), tokens.begin() + 3}, 1, {.training = false}, false);
  for (std::size_t i = 0; i < part.size(); ++i) EXPECT_NEAR(part[i], whole[i], 1e-5) << i;
}

TEST(Gpt, DropoutDependsOnThePositionInTheBatchAlone) {
  Sequences sequences(gpt(0.3));
  const std::vector<std::int32_t> tokens = some_tokens(14);
  const std::array<std::int64_t, 2> both{4, 9};
  const std::array<std::int64_t, 1> second{9}, other{8};
  const std::vector<float> together = sequences.forward(tokens, 2, {.positions = both}, false);
  const std::vector<std::int32_t> last(tokens.begin() + 7, tokens.end());
  const std::vector<float> alone = sequences.forward(last, 1, {.positions = second}, false);
  const std::vector<float> elsewhere = sequences.forward(last, 1, {.positions = other}, false);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[77 + i], alone[i], 1e-5);
  EXPECT_NE(alone, elsewhere);
}

TEST(Gpt, AWarmPassAsksTheSystemForNothing) {
  Sequences sequences(gpt(0.3), 2);
  const std::vector<std::int32_t> tokens = some_tokens(21);
  for (const bool accumulate : {false, true}) {
    sequences.forward(tokens, 3, {.accumulate = accumulate}, true);
  }
  const std::uint64_t calls = sequences.fixture.allocator.stats().system_calls;
  for (int i = 0; i < 4; ++i) sequences.forward(tokens, 3, {.accumulate = i % 2 == 1}, true);
  EXPECT_EQ(sequences.fixture.allocator.stats().system_calls, calls);
  EXPECT_EQ(sequences.fixture.allocator.stats().allocated, 0U);
}

// One operation and several give the same values.
TEST(Sequence, FusedFunctionsEqualTheirParts) {
  const auto model = [](bool fused) {
    auto custom = std::make_unique<Custom>([fused](const Custom& self, Pass& pass, const Value& x) {
      const auto& first = self.child<Linear>(0);
      const auto& norm = self.child<LayerNorm>(1);
      const auto& second = self.child<Linear>(2);
      const auto& third = self.child<Linear>(3);
      const Value a = first.forward(pass, x);
      if (fused) {
        const Value b = functions::layer_norm_linear(pass, a, norm.weights(), second.weights());
        return functions::gelu_tanh_linear_residual(pass, b, third.weights(), a);
      }
      const Value b = second.forward(pass, norm.forward(pass, a));
      return functions::add(pass, a, third.forward(pass, functions::gelu_tanh(pass, b)));
    });
    custom->layer<Linear>("first", 5, 8).layer<LayerNorm>("norm", 8);
    custom->layer<Linear>("second", 8, 19).layer<Linear>("third", 19, 8);
    return custom;
  };
  Fixture fused(model(true)), plain(model(false));
  const std::vector<float> input = numbers(6 * 3 * 5, 1);
  EXPECT_EQ(fused.run(input, {6, 3, 5}).output, plain.run(input, {6, 3, 5}).output);
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_NEAR(fused.gradients[i], plain.gradients[i], 1e-4) << i;
  }
}

// y = x through ways that take a tensor apart and put it together again.
TEST(Sequence, ShapeFunctionsPassGradientsOn) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const Value y = self.child<Linear>(0).forward(pass, x);
    const Value turned = functions::transpose(pass, y, 1, 2);
    const std::array parts{functions::slice(pass, turned, 1, 0, 3),
                           functions::slice(pass, turned, 1, 3, 8)};
    return functions::transpose(pass, functions::concat(pass, parts, 1), 1, 2);
  });
  model->layer<Linear>("fc", 5, 8);
  auto direct = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    return self.child<Linear>(0).forward(pass, x);
  });
  direct->layer<Linear>("fc", 5, 8);
  Fixture a(std::move(model)), b(std::move(direct));
  const std::vector<float> input = numbers(2 * 3 * 5, 1);
  EXPECT_EQ(a.run(input, {2, 3, 5}).output, b.run(input, {2, 3, 5}).output);
  EXPECT_EQ(a.gradients, b.gradients);
}

TEST(Sequence, NormsActivationsAndCrossAttentionHaveTheRightSlopes) {
  auto model = std::make_unique<Custom>([](const Custom& self, Pass& pass, const Value& x) {
    const Value q = functions::silu(pass, self.child<Linear>(0).forward(pass, x));
    const Value k = self.child<RmsNorm>(1).forward(pass, self.child<Linear>(2).forward(pass, x));
    const Value v = functions::gelu_tanh(pass, k);
    return functions::attention(pass, q, k, v, {.heads = 2, .causal = true});
  });
  model->layer<Linear>("q", 5, 8).layer<RmsNorm>("norm", 8).layer<Linear>("k", 5, 8);
  Fixture f(std::move(model));
  const std::vector<float> input = numbers(3 * 6 * 5, 1), dy = numbers(3 * 6 * 8, 99);
  f.run(input, {3, 6, 5});
  const std::vector<float> gradients = f.gradients;
  for (const Parameter* p : f.layout.parameters()) {
    const std::vector<float> direction = numbers(p->elements(), 300);
    const auto weight = f.arena.weight(*p);
    const std::vector<float> before(weight.begin(), weight.end());
    const auto at = [&](double step) {
      for (std::size_t i = 0; i < before.size(); ++i) {
        weight[i] = static_cast<float>(before[i] + step * direction[i]);
      }
      const std::vector<float> y = f.run(input, {3, 6, 5}, {.training = false}).output;
      double sum = 0;
      for (std::size_t i = 0; i < dy.size(); ++i) sum += static_cast<double>(dy[i]) * y[i];
      return sum;
    };
    const double slope = (at(1e-3) - at(-1e-3)) / 2e-3;
    std::ranges::copy(before, weight.begin());
    double expected = 0, magnitude = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      expected += static_cast<double>(gradients[p->offset + i]) * direction[i];
      magnitude += std::abs(static_cast<double>(gradients[p->offset + i]) * direction[i]);
    }
    EXPECT_NEAR(slope, expected, 3e-3 * (1 + magnitude)) << p->name;
  }
}

}  // namespace
}  // namespace dtrain
