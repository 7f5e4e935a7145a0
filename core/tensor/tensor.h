// Tensor: a typed, shaped view of memory. Copies share the memory; elements are contiguous in
// their layout; there are no strides, so every kernel sees dense memory.
//
//   Tensor x = Tensor::empty({32, 784}, DType::f32, allocator, "input");
//   std::span<float> values = x.values<float>();
//   Tensor images = x.reshape({32, 28, 28, 1});   // same memory
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "dtrain/core/base/error.h"
#include "dtrain/core/device/allocator.h"
#include "dtrain/core/tensor/dtype.h"
#include "dtrain/core/tensor/shape.h"

namespace dtrain {

class Tensor {
 public:
  Tensor() = default;  // no tensor: defined() is false

  static Tensor empty(const Shape& shape, DType dtype, Allocator& allocator, std::string_view who,
                      Layout layout = {});
  static Tensor zeros(const Shape& shape, DType dtype, Allocator& allocator, std::string_view who,
                      Layout layout = {});
  // Views memory that the caller keeps alive.
  static Tensor wrap(void* data, const Shape& shape, DType dtype, Layout layout = {});
  template <typename T>
  static Tensor wrap(std::span<T> values, const Shape& shape) {
    DTRAIN_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements(),
                 "{} values for shape {}", values.size(), to_string(shape));
    return wrap(values.data(), shape, dtype_of<T>);
  }

  bool defined() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  std::int64_t elements() const { return elements_; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }

  // The elements in memory order. T must be the element type.
  template <typename T>
  std::span<T> values() const {
    DTRAIN_CHECK(dtype_ == dtype_of<T>, "tensor is {}", to_string(dtype_));
    return {static_cast<T*>(data_), static_cast<std::size_t>(elements_)};
  }
  template <typename T>
  T* data() const {
    return values<T>().data();
  }
  void* raw() const { return data_; }

  // Same memory, another shape with as many elements; only in the plain layout.
  Tensor reshape(const Shape& shape) const;
  // Rows [first, last) of axis 0, in the same memory.
  Tensor rows(std::int64_t first, std::int64_t last) const;

  // Others may hold the same memory: another tensor, or whoever owns wrapped memory.
  bool shared() const { return storage_.use_count() != 1; }

 private:
  std::shared_ptr<MemoryBlock> storage_;  // empty for wrapped memory
  void* data_ = nullptr;
  Shape shape_{0};
  std::int64_t elements_ = 0;
  DType dtype_ = DType::f32;
  Layout layout_;
};

}  // namespace dtrain
