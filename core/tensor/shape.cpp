#include "dtrain/core/tensor/shape.h"

#include <algorithm>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Far more than any machine holds, and so little that sizes in bytes, and sums of many of them,
// stay in range.
constexpr std::int64_t most_elements = std::int64_t{1} << 48;

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  DTRAIN_CHECK(sizes.size() <= max_rank, "a shape of {} axes", sizes.size());
  for (std::int64_t size : sizes) DTRAIN_CHECK(size >= 0, "an axis of size {}", size);
  std::ranges::copy(sizes, sizes_.begin());
}

std::int64_t Shape::operator[](int axis) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  DTRAIN_CHECK(index >= 0 && index < rank_, "axis {} of shape {}", axis, to_string(*this));
  return sizes_[index];
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (std::int64_t size : sizes()) {
    DTRAIN_CHECK(!__builtin_mul_overflow(product, size, &product) && product <= most_elements,
                 "shape {} is too large", to_string(*this));
  }
  return product;
}

std::int64_t Shape::elements_per_row() const {
  std::int64_t product = 1;
  for (int axis = 1; axis < rank_; ++axis) product *= sizes_[axis];
  return product;
}

Shape Shape::with_first(std::int64_t size) const {
  DTRAIN_CHECK(rank_ > 0, "a scalar has no first axis");
  Shape shape = *this;
  shape.sizes_[0] = size;
  return shape;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.sizes(), ", "));
}

}  // namespace dtrain
