// Random tokens, for benchmarks of language models. There is nothing to learn.
//
// Tokens are uniform; a sample is a function of (seed, index).
#pragma once

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/data/dataset.h"

namespace dtrain {

class SyntheticTokens final : public Dataset {
 public:
  // options: `tokens` is set. Throws ConfigError for no tokens or classes.
  explicit SyntheticTokens(const config::Synthetic& options);

  std::int64_t size() const override { return endless; }
  // input: i32 [tokens]; target: i64 [tokens], the token after each.
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;

 private:
  SampleSpec spec_;
  std::uint64_t seed_;
  RandomKey key_;
};

}  // namespace dtrain
