// What is done to a sample's input after reading, in this order: random crop after zero padding,
// random mirroring, normalization, random erasing (to 0, the mean). As in torchvision, padding is
// black before normalization. The random ones happen in training only.
//
// Note [Random transforms]: their numbers are a function of (seed, epoch, sample id) alone, so they
// are the same for any number of workers and processes, and after resuming in mid-epoch. A sample
// that `repeat` brings up again in an epoch has another id there, and so other numbers.
//
//   Transforms transforms(recipe.data().transforms(), dataset->spec(), recipe.seed());
//   transforms.apply(input, epoch, id, /*training=*/true);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/data/dataset.h"

namespace dtrain {

class Transforms {
 public:
  // Changes nothing.
  Transforms() = default;
  // Throws ConfigError naming the key: a list that fits neither one nor all channels, a standard
  // deviation of 0, crop, flip or erase of what is no image [H, W, C], any of tokens.
  Transforms(const config::Transforms& options, const SampleSpec& spec, std::uint64_t seed);

  // input: one sample, f32, [..., C]; changed in place. Thread-safe.
  void apply(std::span<float> input, std::int64_t epoch, std::int64_t id, bool training) const;

 private:
  void crop(std::span<float> image, RandomSequence& random) const;
  void flip(std::span<float> image) const;
  void normalize(std::span<float> input) const;
  void erase(std::span<float> image, RandomSequence& random) const;

  std::int64_t height_ = 0;  // 0: not an image
  std::int64_t width_ = 0;
  std::int64_t channels_ = 1;
  std::vector<float> mean_;  // [channels], or empty: no normalization
  std::vector<float> std_;
  std::int64_t crop_padding_ = 0;  // pixels
  bool flip_ = false;
  double erase_ = 0;  // probability
  RandomKey key_{0};
};

}  // namespace dtrain
