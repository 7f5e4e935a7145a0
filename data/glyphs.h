// Drawn digits: a data set that needs no download and that a small convolutional network learns.
//
// Each sample is one of ten digits, drawn as strokes in one of several styles, bent, scaled,
// turned, sheared and moved at random, with clutter and noise: f32 [28, 28, 1] in [0, 1]. A linear
// model cannot follow the strokes; a small convolutional network can.
//
// A sample is a function of (seed, index) alone, made of arithmetic that IEEE 754 rounds exactly,
// so its bits are the same on every machine.
#pragma once

#include "dtrain/core/random/philox.h"
#include "dtrain/data/dataset.h"

namespace dtrain {

class Glyphs final : public Dataset {
 public:
  static constexpr int side = 28;  // pixels

  explicit Glyphs(std::uint64_t seed);

  std::int64_t size() const override { return endless; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;

 private:
  std::uint64_t seed_;
  RandomKey key_;
  SampleSpec spec_;
};

}  // namespace dtrain
