#include "dtrain/data/sampler.h"

#include <bit>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Small domains need many rounds to mix (a round moves one half, which may be a single bit); on
// large ones four would do, and a sample costs far more than the rest.
constexpr int rounds = 8;

// Half the bits of the smallest domain 4^h that holds n values: cycles stay below four steps.
int half_bits_for(std::int64_t n) {
  const int bits = n > 1 ? std::bit_width(static_cast<std::uint64_t>(n - 1)) : 1;
  return (bits + 1) / 2;
}

}  // namespace

Sampler::Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed)
    : samples_(samples),
      shuffle_(shuffle),
      key_(RandomKey(seed).fork(RandomPurpose::shuffle)),
      half_bits_(half_bits_for(samples)) {
  DTRAIN_CHECK(samples >= 0, "{} samples", samples);
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t position) const {
  DTRAIN_CHECK(epoch >= 0, "epoch {}", epoch);
  DTRAIN_CHECK(position >= 0 && position < samples_, "position {} of {}", position, samples_);
  if (!shuffle_) return position;
  const RandomKey key = key_.fork(static_cast<std::uint64_t>(epoch));
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(position);
  // The network permutes the whole domain; following its cycle until it is back below n permutes
  // [0, n). It gets back at the latest at `position` itself.
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = left ^ (key.block(round, right)[0] & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(value);
}

}  // namespace dtrain
