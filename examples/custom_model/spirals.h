// A data set: points on interleaved spiral arms; the class is the arm. Sample i is a function of i
// alone, so it is the same whoever reads it.
#pragma once

#include <cmath>
#include <cstring>
#include <string>

#include "dtrain/core/random/philox.h"
#include "dtrain/data/dataset.h"

class Spirals : public dtrain::Dataset {
 public:
  Spirals(std::int64_t arms, double noise) : noise_(noise) {
    spec_.input = {dtrain::DType::f32, {2}};
    spec_.target = {dtrain::DType::i64, {}};
    spec_.classes = arms;
  }

  // As many as a recipe asks for: `size: 10000`.
  std::int64_t size() const override { return dtrain::endless; }
  const dtrain::SampleSpec& spec() const override { return spec_; }

  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    dtrain::RandomSequence random(dtrain::RandomKey(1), static_cast<std::uint64_t>(index));
    const std::int64_t arm = index % spec_.classes;
    const double radius = random.uniform(0.1, 1);
    const double turn = radius + static_cast<double>(arm) / static_cast<double>(spec_.classes);
    const double angle = 6.283185307179586 * turn;
    const float point[2] = {
        static_cast<float>(radius * std::cos(angle) + noise_ * random.normal()),
        static_cast<float>(radius * std::sin(angle) + noise_ * random.normal()),
    };
    std::memcpy(input.data(), point, sizeof point);
    std::memcpy(target.data(), &arm, sizeof arm);
  }

  std::string origin(std::int64_t index) const override {
    return "spirals: sample " + std::to_string(index);
  }
  // What makes the content: ranks compare it, and a resumed run with its checkpoint.
  std::string identity() const override {
    return "spirals 1 " + std::to_string(spec_.classes) + " " + std::to_string(noise_);
  }

 private:
  dtrain::SampleSpec spec_;
  double noise_;
};
