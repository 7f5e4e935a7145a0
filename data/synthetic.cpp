#include "dtrain/data/synthetic.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {

namespace {

constexpr std::int64_t max_elements = std::int64_t{1} << 30;
constexpr std::size_t count_of_numbers = 1 << 18;  // 1 MiB: stays in the cache

std::vector<float> draw_numbers(const RandomKey& key) {
  constexpr float width = 3.46410162f;  // sqrt(12): a uniform number this wide has variance 1
  constexpr std::uint64_t stream = ~std::uint64_t{0};  // no sample's
  std::vector<float> numbers(count_of_numbers);
  for (std::size_t i = 0; i < numbers.size(); i += 4) {
    const auto words = key.block(stream, i / 4);
    for (std::size_t k = 0; k < 4; ++k) numbers[i + k] = (unit_float(words[k]) - 0.5f) * width;
  }
  return numbers;
}

Shape shape_of(const config::Synthetic& options) {
  const std::vector<std::int64_t> sizes(options.shape().begin(), options.shape().end());
  // One axis is left for the batch.
  if (sizes.empty() || sizes.size() >= Shape::max_rank) {
    throw ConfigError(fmt::format("synthetic.shape: {} axes, expected 1 to {}", sizes.size(),
                                  Shape::max_rank - 1));
  }
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > max_elements / elements) {
      throw ConfigError(
          fmt::format("synthetic.shape: axis of {} makes a sample of no or more than"
                      " {} elements",
                      size, max_elements));
    }
    elements *= size;
  }
  return Shape(std::span<const std::int64_t>(sizes));
}

}  // namespace

Synthetic::Synthetic(const config::Synthetic& options)
    : seed_(options.seed()),
      key_(RandomKey(seed_).fork(RandomPurpose::synthetic)),
      numbers_(draw_numbers(key_)) {
  if (options.classes() < 1) {
    throw ConfigError(fmt::format("synthetic.classes: {} is less than 1", options.classes()));
  }
  spec_.input = {DType::f32, shape_of(options)};
  spec_.target = {DType::i64, Shape{}};
  spec_.classes = options.classes();
}

void Synthetic::read(std::int64_t index, std::span<std::byte> input,
                     std::span<std::byte> target) const {
  const auto words = key_.block(static_cast<std::uint64_t>(index), 0);
  std::size_t at = words[1] % numbers_.size();
  for (std::size_t done = 0; done < input.size(); at = 0) {
    const std::size_t bytes = std::min(input.size() - done, (numbers_.size() - at) * sizeof(float));
    std::memcpy(input.data() + done, numbers_.data() + at, bytes);
    done += bytes;
  }
  // Multiplication keeps the share of each class within 2^-32 of equal.
  const auto label = static_cast<std::int64_t>(
      static_cast<std::uint64_t>(words[0]) * static_cast<std::uint64_t>(spec_.classes) >> 32);
  std::memcpy(target.data(), &label, sizeof label);
}

std::string Synthetic::origin(std::int64_t index) const {
  return fmt::format("synthetic sample {} of seed {}", index, seed_);
}

std::string Synthetic::identity() const {
  Hasher hasher;
  hasher.add("synthetic 2");
  for (const std::int64_t size : spec_.input.shape.sizes()) hasher.add(size);
  hasher.add(spec_.classes);
  hasher.add(seed_);
  return hasher.hex();
}

}  // namespace dtrain
