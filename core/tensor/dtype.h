// Element types of tensors, and the two 16-bit floating-point formats as storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrain {

enum class DType : std::uint8_t { f32, bf16, f16, i32, i64, u8 };

std::size_t size_of(DType dtype);         // bytes of an element
std::string_view to_string(DType dtype);  // "f32"

// Storage only: arithmetic happens in float. Conversions round to nearest, ties to even.
struct bfloat16 {
  std::uint16_t bits;
};
struct float16 {
  std::uint16_t bits;
};
float to_float(bfloat16 value);
float to_float(float16 value);
bfloat16 to_bfloat16(float value);
float16 to_float16(float value);

template <typename T>
constexpr DType dtype_of = T::no_such_element_type;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

}  // namespace dtrain
