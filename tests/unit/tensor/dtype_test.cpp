// The 16-bit formats, over all their values.
#include "dtrain/core/tensor/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// The value of a 16-bit format by its definition.
double value_of(std::uint16_t bits, int fraction_bits, int exponent_bits) {
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * infinity;
  }
  const double one = std::ldexp(1.0, fraction_bits);
  if (exponent == 0) return sign * std::ldexp(fraction / one, 1 - bias);
  return sign * std::ldexp(1 + fraction / one, exponent - bias);
}

template <typename Half>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int fraction_bits = 7, exponent_bits = 8;
  static bfloat16 from(float x) { return to_bfloat16(x); }
};
template <>
struct Format<float16> {
  static constexpr int fraction_bits = 10, exponent_bits = 5;
  static float16 from(float x) { return to_float16(x); }
};

template <typename Half>
class Formats : public testing::Test {
 protected:
  using F = Format<Half>;
  static double value(std::uint32_t bits) {
    return value_of(static_cast<std::uint16_t>(bits), F::fraction_bits, F::exponent_bits);
  }
  static constexpr std::uint16_t infinity_bits = ((1 << F::exponent_bits) - 1) << F::fraction_bits;
};
using Halves = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Formats, Halves);

TYPED_TEST(Formats, EveryValueIsThatOfTheDefinitionAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const TypeParam half{static_cast<std::uint16_t>(bits)};
    const float x = to_float(half);
    const double expected = this->value(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      const auto back = TestFixture::F::from(x);
      ASSERT_TRUE(std::isnan(to_float(back))) << bits;
      ASSERT_EQ(back.bits >> 15, bits >> 15) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), expected) << bits;
    ASSERT_EQ(std::signbit(x), bits >> 15 != 0) << bits;
    ASSERT_EQ(TestFixture::F::from(x).bits, bits);
  }
}

// Between two neighbours: below the middle the lower one, above it the upper one, at it the even.
TYPED_TEST(Formats, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits + 1 < this->infinity_bits; ++bits) {
    const double low = this->value(bits), high = this->value(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    if (static_cast<double>(middle) != (low + high) / 2) continue;  // below float's own steps
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint32_t sign_bit = sign < 0 ? 0x8000 : 0;
      const auto round = [&](float x) { return TestFixture::F::from(sign * x).bits - sign_bit; };
      ASSERT_EQ(round(middle), bits + (bits & 1)) << bits;
      ASSERT_EQ(round(std::nextafter(middle, 0.0F)), bits) << bits;
      ASSERT_EQ(round(std::nextafter(middle, infinity)), bits + 1) << bits;
    }
  }
}

TYPED_TEST(Formats, OverflowsToInfinityFromTheMiddleOn) {
  const double largest = this->value(this->infinity_bits - 1);
  const double step = largest - this->value(this->infinity_bits - 2);
  const auto middle = static_cast<float>(largest + step / 2);
  EXPECT_EQ(TestFixture::F::from(middle).bits, this->infinity_bits);
  EXPECT_EQ(TestFixture::F::from(std::nextafter(middle, 0.0F)).bits, this->infinity_bits - 1);
  EXPECT_EQ(TestFixture::F::from(-infinity).bits, this->infinity_bits | 0x8000);
  EXPECT_EQ(TestFixture::F::from(std::numeric_limits<float>::max()).bits, this->infinity_bits);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::f16), 2U);
  EXPECT_EQ(size_of(DType::i32), 4U);
  EXPECT_EQ(size_of(DType::i64), 8U);
  EXPECT_EQ(size_of(DType::u8), 1U);
  EXPECT_EQ(to_string(DType::f32), "f32");
  EXPECT_EQ(to_string(DType::bf16), "bf16");
  EXPECT_EQ(to_string(DType::f16), "f16");
  EXPECT_EQ(to_string(DType::i32), "i32");
  EXPECT_EQ(to_string(DType::i64), "i64");
  EXPECT_EQ(to_string(DType::u8), "u8");
}

}  // namespace
}  // namespace dtrain
