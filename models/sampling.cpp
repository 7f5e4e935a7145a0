#include "dtrain/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dtrain {

namespace {

// Lengths are rounded up to this, so that a model is run on few different shapes, each of which
// costs the making of its kernels once. What stands behind the last token changes nothing before.
constexpr std::int64_t length_step = 64;

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options,
                        RandomKey key, std::uint64_t index) {
  DTRAIN_CHECK(!logits.empty(), "no tokens to draw from");
  for (const float logit : logits) {
    if (!std::isfinite(logit)) {
      throw NonFiniteError(
          fmt::format("the model gives a logit of {}: its weights are spoiled", logit));
    }
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t kept = options.temperature == 0 ? 1
                           : options.top_k == 0
                               ? logits.size()
                               : std::min(logits.size(), static_cast<std::size_t>(options.top_k));
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)];
    const float of_b = logits[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(kept), likelier);
  order.resize(kept);
  if (kept == 1) return order.front();
  std::vector<double> weights(kept);
  const double largest = logits[static_cast<std::size_t>(order.front())];
  for (std::size_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<std::size_t>(order[i])];
    weights[i] = std::exp((logit - largest) / options.temperature);
  }
  RandomSequence random(key, index);
  double left = random.uniform_double() * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.front();  // rounding left a trace
}

TokenGenerator::TokenGenerator(OpContext& context, const Module& model,
                               const ParameterArena& weights, std::int64_t model_context,
                               SamplingOptions options)
    : context_(context),
      model_(model),
      weights_(weights),
      model_context_(model_context),
      options_(options),
      key_(RandomKey(options.seed).fork(RandomPurpose::sampling)) {}

std::int32_t TokenGenerator::next(std::span<const std::int32_t> tokens) {
  DTRAIN_CHECK(!tokens.empty(), "no tokens to go on from");
  const auto seen =
      std::min<std::int64_t>(model_context_, static_cast<std::int64_t>(tokens.size()));
  const std::int64_t length =
      std::min(model_context_, (seen + length_step - 1) / length_step * length_step);
  const Tensor input = Tensor::zeros({1, length}, DType::i32, context_.allocator(), "tokens");
  std::ranges::copy(tokens.last(static_cast<std::size_t>(seen)),
                    input.values<std::int32_t>().begin());
  Pass pass(context_,
            {.weights = weights_.weights(),
             .buffers = weights_.buffers(),
             .gradients = {},
             .parameters = weights_.layout().parameters()},
            {.training = false});
  const Value logits = model_.forward(pass, pass.input(input));
  const auto columns = static_cast<std::size_t>(logits.shape()[-1]);
  return draw_token(
      logits.tensor.values<float>().subspan(static_cast<std::size_t>(seen - 1) * columns, columns),
      options_, key_, drawn_++);
}

}  // namespace dtrain
