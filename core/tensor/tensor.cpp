#include "dtrain/core/tensor/tensor.h"

#include <cstring>

namespace dtrain {

namespace {

void check_layout(const Shape& shape, Layout layout) {
  if (layout.channel_block == 0) return;
  DTRAIN_CHECK(
      shape.rank() == 4 && layout.channel_block > 0 && shape[3] % layout.channel_block == 0,
      "shape {} in channel blocks of {}", to_string(shape), layout.channel_block);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Allocator& allocator, std::string_view who,
                     Layout layout) {
  check_layout(shape, layout);
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.layout_ = layout;
  tensor.elements_ = shape.elements();
  tensor.storage_ = std::make_shared<MemoryBlock>(allocator.allocate(tensor.bytes(), who));
  tensor.data_ = tensor.storage_->data();
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Allocator& allocator, std::string_view who,
                     Layout layout) {
  Tensor tensor = empty(shape, dtype, allocator, who, layout);
  std::memset(tensor.data_, 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype, Layout layout) {
  check_layout(shape, layout);
  Tensor tensor;
  tensor.data_ = data;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.layout_ = layout;
  tensor.elements_ = shape.elements();
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  DTRAIN_CHECK(shape.elements() == elements_, "{} reshaped to {}", to_string(shape_),
               to_string(shape));
  DTRAIN_CHECK(layout_ == Layout{}, "an image in channel blocks of {} reshaped",
               layout_.channel_block);
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::rows(std::int64_t first, std::int64_t last) const {
  DTRAIN_CHECK(0 <= first && first <= last && last <= shape_[0], "rows {} to {} of {}", first, last,
               to_string(shape_));
  Tensor view = *this;
  view.shape_ = shape_.with_first(last - first);
  view.elements_ = view.shape_.elements();
  view.data_ = static_cast<std::byte*>(data_) +
               static_cast<std::size_t>(first) * shape_.elements_per_row() * size_of(dtype_);
  return view;
}

}  // namespace dtrain
