#include "dtrain/models/sampling.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "dtrain/models/gpt.h"

namespace dtrain {
namespace {

const std::vector<float> logits = {0.5F, 2, -1, 2, 0};

// Shares of 20,000 draws.
std::vector<double> shares(const SamplingOptions& options) {
  std::vector<double> counts(logits.size());
  for (std::uint64_t i = 0; i < 20000; ++i) {
    counts[static_cast<std::size_t>(draw_token(logits, options, RandomKey(3), i))] += 1.0 / 20000;
  }
  return counts;
}

TEST(DrawToken, FollowsTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    for (const std::int64_t top_k : {0, 3, 99}) {
      std::vector<double> expected;
      for (const float logit : logits) expected.push_back(std::exp(logit / temperature));
      if (top_k == 3) expected[2] = expected[4] = 0;
      const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
      const std::vector<double> drawn = shares({.temperature = temperature, .top_k = top_k});
      for (std::size_t i = 0; i < logits.size(); ++i) {
        EXPECT_NEAR(drawn[i], expected[i] / sum, 0.015) << i << " at " << temperature;
      }
    }
  }
}

TEST(DrawToken, WithoutChoiceIsTheLikeliestAndLowest) {
  EXPECT_EQ(shares({.temperature = 0})[1], shares({.top_k = 1})[1]);
  EXPECT_NEAR(shares({.top_k = 1})[1], 1, 1e-9);
}

TEST(DrawToken, RefusesSpoiledLogits) {
  EXPECT_THROW(draw_token(std::vector<float>{1, NAN}, {}, RandomKey(1), 0), NonFiniteError);
  EXPECT_THROW(draw_token(std::vector<float>{1, INFINITY}, {}, RandomKey(1), 0), NonFiniteError);
}

class Generator : public testing::Test {
 protected:
  static config::Gpt options() {
    config::Gpt options;
    options.set_layers(1);
    options.set_width(8);
    options.set_heads(2);
    options.set_context(70);
    options.set_vocabulary(11);
    return options;
  }
  Generator() {
    context_.bind_to_this_thread();
    initialize(arena_, RandomKey(1));
    for (float& value : arena_.weights()) value *= 20;
  }
  std::vector<std::int32_t> generate(std::vector<std::int32_t> tokens, std::size_t count,
                                     std::uint64_t seed) {
    TokenGenerator generator(context_, model_, arena_, 70, {.seed = seed});
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(generator.next(tokens));
    return tokens;
  }
  Gpt model_{options(), {.shape = {70}, .classes = 11, .dtype = DType::i32}};
  ArenaLayout layout_{model_};
  ParameterArena arena_{layout_};
  Allocator allocator_{"test"};
  OpContext context_{allocator_, 1};
};

TEST_F(Generator, GoesOnBeyondTheContextAndIsAFunctionOfTheSeed) {
  const std::vector<std::int32_t> a = generate({3, 1, 4}, 100, 5);
  EXPECT_EQ(a.size(), 103U);
  EXPECT_EQ(generate({3, 1, 4}, 100, 5), a);
  EXPECT_NE(generate({3, 1, 4}, 100, 6), a);
  for (const std::int32_t token : a) EXPECT_TRUE(token >= 0 && token < 11);
}

TEST_F(Generator, SeesTheLastTokensOfALongPrompt) {
  std::vector<std::int32_t> text(200);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * i % 11);
  TokenGenerator of_all(context_, model_, arena_, 70, {}),
      of_last(context_, model_, arena_, 70, {});
  EXPECT_EQ(of_all.next(text), of_last.next(std::span(text).last(70)));
}

}  // namespace
}  // namespace dtrain
