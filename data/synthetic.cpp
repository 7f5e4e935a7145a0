#include "dtrain/data/synthetic.h"

#include <cstring>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {

namespace {

constexpr std::int64_t max_elements = std::int64_t{1} << 30;

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
    : seed_(options.seed()), key_(RandomKey(seed_).fork(RandomPurpose::synthetic)) {
  if (options.classes() < 1) {
    throw ConfigError(fmt::format("synthetic.classes: {} is less than 1", options.classes()));
  }
  spec_.input = {DType::f32, shape_of(options)};
  spec_.target = {DType::i64, Shape{}};
  spec_.classes = options.classes();
}

void Synthetic::read(std::int64_t index, std::span<std::byte> input,
                     std::span<std::byte> target) const {
  const auto stream = static_cast<std::uint64_t>(index);
  constexpr float width = 3.46410162f;  // sqrt(12): a uniform number this wide has variance 1
  const std::size_t count = input.size() / sizeof(float);
  for (std::size_t i = 0; i < count; i += 4) {
    const auto words = key_.block(stream, i / 4 + 1);
    std::array<float, 4> values;
    for (std::size_t k = 0; k < 4; ++k) values[k] = (unit_float(words[k]) - 0.5f) * width;
    std::memcpy(input.data() + i * sizeof(float), values.data(),
                std::min<std::size_t>(4, count - i) * sizeof(float));
  }
  // Multiplication keeps the share of each class within 2^-32 of equal.
  const std::uint64_t word = key_.block(stream, 0)[0];
  const auto label =
      static_cast<std::int64_t>(word * static_cast<std::uint64_t>(spec_.classes) >> 32);
  std::memcpy(target.data(), &label, sizeof label);
}

std::string Synthetic::origin(std::int64_t index) const {
  return fmt::format("synthetic sample {} of seed {}", index, seed_);
}

std::string Synthetic::identity() const {
  Hasher hasher;
  hasher.add("synthetic 1");
  for (const std::int64_t size : spec_.input.shape.sizes()) hasher.add(size);
  hasher.add(spec_.classes);
  hasher.add(seed_);
  return hasher.hex();
}

}  // namespace dtrain
