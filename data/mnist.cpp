#include "dtrain/data/mnist.h"

#include <array>
#include <cstring>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {

namespace {

constexpr std::int64_t mnist_classes = 10;

constexpr std::array<float, 256> make_unit_of_byte() {
  std::array<float, 256> table{};
  for (std::size_t i = 0; i < 256; ++i) table[i] = static_cast<float>(i) / 255.0f;
  return table;
}

constexpr std::array<float, 256> unit_of_byte = make_unit_of_byte();

}  // namespace

Mnist::Mnist(const std::string& images, const std::string& labels)
    : images_(images, IdxKind::images), labels_path_(labels) {
  const IdxFile label_file(labels, IdxKind::labels);
  if (images_.count() != label_file.count()) {
    throw DataError(
        images, -1,
        fmt::format("{} images, but {} labels in {}", images_.count(), label_file.count(), labels));
  }
  labels_.resize(static_cast<std::size_t>(label_file.count()));
  label_file.read_all(labels_);
  spec_.input = {DType::f32, Shape{images_.item_shape()[0], images_.item_shape()[1], 1}};
  spec_.target = {DType::i64, Shape{}};
  spec_.classes = mnist_classes;
}

void Mnist::check_label(std::int64_t index) const {
  const int label = labels_[static_cast<std::size_t>(index)];
  if (label < mnist_classes) return;
  throw DataError(labels_path_, index,
                  fmt::format("label {}, but there are {} classes (0 to {})", label, mnist_classes,
                              mnist_classes - 1));
}

void Mnist::check(std::int64_t first, std::int64_t last) const {
  for (std::int64_t i = first; i < last; ++i) check_label(i);
}

void Mnist::read(std::int64_t index, std::span<std::byte> input,
                 std::span<std::byte> target) const {
  check_label(index);
  // The bytes go to the end of the floats' room and are widened from the front: float i covers
  // bytes 4i to 4i + 3, and byte i waits at 3n + i, which no earlier float reaches.
  const std::size_t pixels = images_.item_bytes();
  const std::span<std::byte> bytes = input.last(pixels);
  images_.read(index, {reinterpret_cast<std::uint8_t*>(bytes.data()), pixels});
  for (std::size_t i = 0; i < pixels; ++i) {
    const float value = unit_of_byte[std::to_integer<std::size_t>(bytes[i])];
    std::memcpy(input.data() + i * sizeof(float), &value, sizeof value);
  }
  const std::int64_t label = labels_[static_cast<std::size_t>(index)];
  std::memcpy(target.data(), &label, sizeof label);
}

std::string Mnist::origin(std::int64_t index) const {
  return fmt::format("{}: image {}", images_.path(), index);
}

std::string Mnist::identity() const {
  Hasher hasher;
  hasher.add("mnist");
  hasher.add(images_.identity());
  hasher.add(std::as_bytes(std::span(labels_)));
  return hasher.hex();
}

}  // namespace dtrain
