// Which sample stands at which position of an epoch.
//
// Shuffled, it is a permutation keyed by (seed, epoch), computed for each position on its own (a
// Feistel network that walks its cycle back into [0, n)): no memory per sample, so resuming near
// the end of an epoch of 50 million costs nothing.
#pragma once

#include <cstdint>

#include "dtrain/core/random/philox.h"

namespace dtrain {

class Sampler {
 public:
  // samples >= 0.
  Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed);
  std::int64_t samples() const { return samples_; }
  // Sample id at `position` in [0, samples) of an epoch.
  std::int64_t sample(std::int64_t epoch, std::int64_t position) const;

 private:
  std::int64_t samples_;
  bool shuffle_;
  RandomKey key_;
  int half_bits_;
};

}  // namespace dtrain
