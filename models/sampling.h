// Text from a trained model of sequences: one token after the other, each drawn from what the model
// gives to the tokens before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/module.h"
#include "dtrain/core/random/philox.h"

namespace dtrain {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0 takes the likeliest token
  std::int64_t top_k = 0;  // draw from the k likeliest; 0: from all
  std::uint64_t seed = 0;
};

// Draws one of the tokens that `logits` rates. A function of the arguments alone: of equal logits
// the lower token is the likelier. Throws NonFiniteError for logits that are not finite.
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options,
                        RandomKey key, std::uint64_t index);

class TokenGenerator {
 public:
  // model: [N, T] i32 to logits [N, T, V] for T <= context, where a token sees earlier ones only.
  // Everything outlives this.
  TokenGenerator(OpContext& context, const Module& model, const ParameterArena& weights,
                 std::int64_t model_context, SamplingOptions options);

  // The next token after `tokens`, of which there is at least one; the model sees as many of the
  // last as it can.
  std::int32_t next(std::span<const std::int32_t> tokens);

 private:
  OpContext& context_;
  const Module& model_;
  const ParameterArena& weights_;
  std::int64_t model_context_;
  SamplingOptions options_;
  RandomKey key_;
  std::uint64_t drawn_ = 0;
};

}  // namespace dtrain
