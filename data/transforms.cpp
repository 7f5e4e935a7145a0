#include "dtrain/data/transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/text.h"

namespace dtrain {

namespace {

// One value per channel from a list of one or all; `otherwise` if it is empty.
std::vector<float> per_channel(std::string_view key, const auto& values, std::int64_t channels,
                               float otherwise) {
  const auto given = static_cast<std::int64_t>(values.size());
  if (given > 1 && given != channels) {
    throw ConfigError(
        fmt::format("data.transforms.{}: samples have {}, but {} values are given: give {}one for "
                    "all channels",
                    key, counted(channels, "channel"), given,
                    channels == 1 ? "" : fmt::format("{} values, or ", channels)));
  }
  std::vector<float> result(static_cast<std::size_t>(channels), otherwise);
  for (std::int64_t c = 0; c < channels && given > 0; ++c) {
    const double value = values[static_cast<int>(given == 1 ? 0 : c)];
    const auto number = static_cast<float>(value);
    if (!std::isfinite(number)) {
      throw ConfigError(fmt::format("data.transforms.{}: {} is not finite", key, value));
    }
    result[static_cast<std::size_t>(c)] = number;
  }
  return result;
}

// Share of the image that an erased rectangle covers, and the largest ratio of its sides.
constexpr double min_erased_share = 0.02;
constexpr double max_erased_share = 0.33;
constexpr double max_erased_ratio = 3.3;

}  // namespace

Transforms::Transforms(const config::Transforms& options, const SampleSpec& spec,
                       std::uint64_t seed)
    : crop_padding_(options.crop_padding()),
      flip_(options.flip()),
      erase_(options.erase()),
      key_(RandomKey(seed).fork(RandomPurpose::transform)) {
  const Shape& shape = spec.input.shape;
  if (spec.input.dtype != DType::f32) {
    if (options.mean_size() > 0 || options.std_size() > 0 || crop_padding_ > 0 || flip_ ||
        erase_ > 0) {
      throw ConfigError("data.transforms: are for numbers and images, but samples are tokens");
    }
    return;
  }
  if (shape.rank() > 0) channels_ = shape[-1];
  if (options.mean_size() > 0 || options.std_size() > 0) {
    mean_ = per_channel("mean", options.mean(), channels_, 0);
    std_ = per_channel("std", options.std(), channels_, 1);
    for (const float value : std_) {
      if (value <= 0) throw ConfigError("data.transforms.std: must be positive in 32 bits");
    }
  }
  const char* of_images = crop_padding_ > 0 ? "crop_padding" : flip_ ? "flip" : "erase";
  if (crop_padding_ == 0 && !flip_ && erase_ == 0) return;
  if (shape.rank() != 3) {
    throw ConfigError(fmt::format(
        "data.transforms.{}: is for images [height, width, channels], but samples are {}",
        of_images, to_string(shape)));
  }
  height_ = shape[0];
  width_ = shape[1];
  if (crop_padding_ >= std::min(height_, width_)) {
    throw ConfigError(
        fmt::format("data.transforms.crop_padding: {} may leave nothing of {} x {}"
                    " images; the largest is {}",
                    crop_padding_, height_, width_, std::min(height_, width_) - 1));
  }
}

void Transforms::apply(std::span<float> input, std::int64_t epoch, std::int64_t id,
                       bool training) const {
  if (!training || height_ == 0) {
    normalize(input);
    return;
  }
  RandomSequence random(
      key_.fork(static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(id)));
  if (crop_padding_ > 0) crop(input, random);
  if (flip_ && (random.next_u32() & 1) != 0) flip(input);
  normalize(input);
  if (erase_ > 0) erase(input, random);
}

// Shifts the image by up to the padding each way, in place, and fills up with 0.
void Transforms::crop(std::span<float> image, RandomSequence& random) const {
  const auto choices = static_cast<std::uint64_t>(2 * crop_padding_ + 1);
  // Output pixel (y, x) is input pixel (y + down, x + right).
  const auto down = static_cast<std::int64_t>(random.below(choices)) - crop_padding_;
  const auto right = static_cast<std::int64_t>(random.below(choices)) - crop_padding_;
  const std::int64_t row = width_ * channels_;
  const std::int64_t kept = (width_ - std::abs(right)) * channels_;
  const std::int64_t from = std::max<std::int64_t>(right, 0) * channels_;
  const std::int64_t to = std::max<std::int64_t>(-right, 0) * channels_;
  float* const pixels = image.data();
  for (std::int64_t i = 0; i < height_; ++i) {
    // Rows in the order in which none is overwritten before it was read.
    const std::int64_t y = down >= 0 ? i : height_ - 1 - i;
    float* const out = pixels + y * row;
    const std::int64_t source = y + down;
    if (source < 0 || source >= height_) {
      std::fill(out, out + row, 0.0f);
      continue;
    }
    const float* const in = pixels + source * row + from;
    std::memmove(out + to, in, static_cast<std::size_t>(kept) * sizeof(float));
    std::fill(out, out + to, 0.0f);
    std::fill(out + to + kept, out + row, 0.0f);
  }
}

void Transforms::flip(std::span<float> image) const {
  for (std::int64_t y = 0; y < height_; ++y) {
    float* left = image.data() + y * width_ * channels_;
    float* right = left + (width_ - 1) * channels_;
    for (; left < right; left += channels_, right -= channels_) {
      std::swap_ranges(left, left + channels_, right);
    }
  }
}

void Transforms::normalize(std::span<float> input) const {
  if (mean_.empty()) return;
  if (channels_ == 1) {
    for (float& value : input) value = (value - mean_[0]) / std_[0];
    return;
  }
  const auto channels = static_cast<std::size_t>(channels_);
  for (std::size_t i = 0; i < input.size(); i += channels) {
    for (std::size_t c = 0; c < channels; ++c) input[i + c] = (input[i + c] - mean_[c]) / std_[c];
  }
}

void Transforms::erase(std::span<float> image, RandomSequence& random) const {
  if (random.uniform_double() >= erase_) return;
  const auto area = static_cast<double>(height_ * width_);
  // A rectangle may be too long for the image; ten tries nearly always find one that is not.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double erased = area * random.uniform(min_erased_share, max_erased_share);
    // Only arithmetic that IEEE 754 rounds exactly: the library's logarithm differs by machine.
    const double ratio = random.uniform(1.0, max_erased_ratio);
    const bool tall = (random.next_u32() & 1) != 0;
    const auto longer = static_cast<std::int64_t>(std::sqrt(erased * ratio) + 0.5);
    const auto shorter = static_cast<std::int64_t>(std::sqrt(erased / ratio) + 0.5);
    const std::int64_t h = std::max<std::int64_t>(tall ? longer : shorter, 1);
    const std::int64_t w = std::max<std::int64_t>(tall ? shorter : longer, 1);
    if (h > height_ || w > width_) continue;
    const auto y0 =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(height_ - h + 1)));
    const auto x0 =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(width_ - w + 1)));
    for (std::int64_t y = y0; y < y0 + h; ++y) {
      float* const first = image.data() + (y * width_ + x0) * channels_;
      std::fill(first, first + w * channels_, 0.0f);
    }
    return;
  }
}

}  // namespace dtrain
