// Shape of a tensor: up to six sizes. Images are [N, H, W, C] in every layout.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace dtrain {

class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;  // a scalar: rank 0, one element
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::span<const std::int64_t> sizes);

  int rank() const { return rank_; }
  // Negative axes count from the end.
  std::int64_t operator[](int axis) const;
  std::int64_t elements() const;
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), std::size_t(rank_)}; }
  // All axes but the first: elements of one sample.
  std::int64_t elements_per_row() const;
  Shape with_first(std::int64_t size) const;  // same shape, another size of axis 0

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[32, 28, 28, 1]"

// How the elements of an image tensor lie in memory.
//
// Note [Channel blocks]: a channel-blocked image lies as [N, C/b, H, W, b]. Plain NHWC is the case
// b = C, so a kernel written for channel blocks serves both. Only tensors of shape [N, H, W, C]
// with C a multiple of b are blocked; the shape always says [N, H, W, C].
struct Layout {
  int channel_block = 0;  // 0: plain row-major
  friend bool operator==(const Layout&, const Layout&) = default;
};

}  // namespace dtrain
