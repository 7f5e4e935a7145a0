#include "dtrain/data/synthetic_tokens.h"

#include <cstring>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {

SyntheticTokens::SyntheticTokens(const config::Synthetic& options)
    : seed_(options.seed()), key_(RandomKey(seed_).fork(RandomPurpose::synthetic)) {
  if (options.tokens() < 1) {
    throw ConfigError(fmt::format("synthetic.tokens: {} is less than 1", options.tokens()));
  }
  if (options.classes() < 1) {
    throw ConfigError(fmt::format("synthetic.classes: {} is less than 1", options.classes()));
  }
  spec_.input = {DType::i32, Shape{options.tokens()}};
  spec_.target = {DType::i64, Shape{options.tokens()}};
  spec_.classes = options.classes();
}

void SyntheticTokens::read(std::int64_t index, std::span<std::byte> input,
                           std::span<std::byte> target) const {
  const auto stream = static_cast<std::uint64_t>(index);
  const auto classes = static_cast<std::uint64_t>(spec_.classes);
  const auto length = static_cast<std::size_t>(spec_.input.shape.elements());
  for (std::size_t block = 0; block <= length; block += 4) {
    const auto words = key_.block(stream, block / 4);
    for (std::size_t i = block; i <= length && i < block + 4; ++i) {
      // Multiplication keeps the share of each token within 2^-32 of equal.
      const auto token = static_cast<std::int64_t>(words[i % 4] * classes >> 32);
      const auto narrow = static_cast<std::int32_t>(token);
      if (i < length) std::memcpy(input.data() + i * sizeof narrow, &narrow, sizeof narrow);
      if (i > 0) std::memcpy(target.data() + (i - 1) * sizeof token, &token, sizeof token);
    }
  }
}

std::string SyntheticTokens::origin(std::int64_t index) const {
  return fmt::format("synthetic tokens {} of seed {}", index, seed_);
}

std::string SyntheticTokens::identity() const {
  Hasher hasher;
  hasher.add("synthetic tokens 1");
  hasher.add(spec_.input.shape.elements());
  hasher.add(spec_.classes);
  hasher.add(seed_);
  return hasher.hex();
}

}  // namespace dtrain
