// Random inputs and labels of any shape, for benchmarks. There is nothing to learn.
//
// Inputs are uniform with mean 0 and variance 1; a sample is a function of (seed, index). It is cut
// from one long row of numbers at a place of its own, so that a benchmark of training spends no
// time on drawing them.
#pragma once

#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/data/dataset.h"

namespace dtrain {

class Synthetic final : public Dataset {
 public:
  // Throws ConfigError for a shape of no or too many elements.
  explicit Synthetic(const config::Synthetic& options);

  std::int64_t size() const override { return endless; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;

 private:
  SampleSpec spec_;
  std::uint64_t seed_;
  RandomKey key_;
  std::vector<float> numbers_;
};

}  // namespace dtrain
