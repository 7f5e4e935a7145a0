#include "dtrain/core/ops/elementwise.h"

#include <array>
#include <functional>
#include <limits>
#include <string>

#include "dtrain/tests/reference/broadcast.h"
#include "dtrain/tests/reference/layout.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class ElementwiseTest : public OpsTest {};

struct ShapePair {
  Shape a, b, y;
};

const std::vector<ShapePair> shape_pairs = {
    {{}, {}, {}},
    {{5}, {}, {5}},
    {{}, {3, 2}, {3, 2}},
    {{37}, {37}, {37}},
    {{4, 37}, {37}, {4, 37}},
    {{37}, {4, 37}, {4, 37}},
    {{4, 1}, {1, 21}, {4, 21}},
    {{2, 3, 4, 5}, {3, 1, 5}, {2, 3, 4, 5}},
    {{2, 3, 4, 5}, {2, 1, 1, 5}, {2, 3, 4, 5}},
    {{2, 1, 3, 1, 2, 1}, {1, 4, 1, 5, 1, 6}, {2, 4, 3, 5, 2, 6}},
    {{2, 4, 3, 5, 2, 6}, {4, 1, 5, 2, 1}, {2, 4, 3, 5, 2, 6}},
    {{1, 1, 1}, {1}, {1, 1, 1}},
    {{0, 3}, {3}, {0, 3}},
    {{0, 3}, {1, 1}, {0, 3}},
};

TEST_F(ElementwiseTest, AddAndMultiplyBroadcastAsInNumPy) {
  for_each_instruction_set([&] {
    for (const ShapePair& shapes : shape_pairs) {
      SCOPED_TRACE(to_string(shapes.a) + " and " + to_string(shapes.b));
      const Tensor a = random(shapes.a, -2, 2, 1);
      const Tensor b = random(shapes.b, -2, 2, 2);
      const Tensor sum = ops::add(context_, a, b);
      const Tensor product = ops::multiply(context_, a, b);
      EXPECT_EQ(sum.shape(), shapes.y);
      EXPECT_EQ(product.shape(), shapes.y);
      // One operation rounds once, so float arithmetic gives the very values.
      const auto expected = [&](const std::function<double(double, double)>& f) {
        return reference::broadcast(shapes.y, doubles(a), shapes.a, doubles(b), shapes.b, f);
      };
      EXPECT_EQ(doubles(sum), expected([](double u, double v) {
                  return static_cast<float>(u) + static_cast<float>(v);
                }));
      EXPECT_EQ(doubles(product), expected([](double u, double v) {
                  return static_cast<float>(u) * static_cast<float>(v);
                }));
    }
  });
}

TEST_F(ElementwiseTest, AddTakesImagesOfOneLayout) {
  const Tensor a = random({2, 3, 3, 16}, -1, 1, 1, Layout{8});
  const Tensor b = random({2, 3, 3, 16}, -1, 1, 2, Layout{8});
  const Tensor y = ops::add(context_, a, b);
  EXPECT_EQ(y.layout(), Layout{8});
  EXPECT_EQ(y.values<float>()[100], a.values<float>()[100] + b.values<float>()[100]);
  EXPECT_THROW(ops::add(context_, a, ops::to_layout(context_, b, Layout{})), InternalError);
}

TEST_F(ElementwiseTest, ShapesThatDoNotBroadcastAreNamed) {
  try {
    ops::add(context_, random({2, 3}, 0, 1), random({2, 4}, 0, 1));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("[2, 3] and [2, 4]"), std::string::npos);
  }
}

TEST_F(ElementwiseTest, SumToShapeIsTheAdjointOfBroadcasting) {
  for_each_instruction_set([&] {
    for (const ShapePair& shapes : shape_pairs) {
      for (const Shape& shape : {shapes.a, shapes.b}) {
        SCOPED_TRACE(to_string(shapes.y) + " to " + to_string(shape));
        const Tensor x = random(shapes.y, -2, 2);
        const Tensor sums = ops::sum_to_shape(context_, x, shape);
        EXPECT_EQ(sums.shape(), shape);
        EXPECT_LE(
            relative_error(doubles(sums), reference::sum_to_shape(doubles(x), shapes.y, shape)),
            1e-6);
      }
    }
  });
}

TEST_F(ElementwiseTest, SumToShapeKeepsTheDigitsOfLongSums) {
  // 100,000 times 0.1F in float would be off by a percent of a unit.
  const Tensor x = of(std::vector<float>(300000, 0.1F), {100000, 3});
  const Tensor sums = ops::sum_to_shape(context_, x, {3});
  for (const float sum : sums.values<float>()) {
    EXPECT_EQ(sum, static_cast<float>(100000 * static_cast<double>(0.1F)));
  }
}

TEST_F(ElementwiseTest, SumToShapeRejectsWhatDoesNotBroadcast) {
  EXPECT_THROW(ops::sum_to_shape(context_, random({2, 3}, 0, 1), {2}), InternalError);
  EXPECT_THROW(ops::sum_to_shape(context_, random({3}, 0, 1), {2, 3}), InternalError);
}

TEST_F(ElementwiseTest, AddInPlaceAndScale) {
  for_each_instruction_set([&] {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 100}) {
      const Tensor y = random({n}, -1, 1, 1);
      const Tensor x = random({n}, -1, 1, 2);
      const std::vector<double> before = doubles(y);
      const Tensor scaled = ops::scale(context_, y, 0.3F);
      ops::add_in_place(y, x);
      for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(y.values<float>()[i], static_cast<float>(before[i]) + x.values<float>()[i]);
        EXPECT_EQ(scaled.values<float>()[i], static_cast<float>(before[i]) * 0.3F);
      }
    }
  });
  const Tensor three = random({3}, 0, 1);
  EXPECT_THROW(ops::add_in_place(three, random({4}, 0, 1)), InternalError);
}

TEST_F(ElementwiseTest, ToLayoutMovesEveryElementToItsPlace) {
  struct Case {
    Shape shape;
    int from, to;
  };
  for (const Case& c :
       {Case{{2, 3, 5, 32}, 0, 16}, Case{{2, 3, 5, 32}, 16, 0}, Case{{2, 3, 5, 32}, 8, 16},
        Case{{2, 3, 5, 32}, 16, 8}, Case{{1, 1, 7, 24}, 8, 12}, Case{{1, 2, 2, 6}, 0, 3},
        Case{{1, 2, 2, 6}, 3, 2}, Case{{2, 4, 4, 8}, 0, 4}, Case{{2, 4, 4, 8}, 0, 8}}) {
    SCOPED_TRACE(to_string(c.shape) + " from " + std::to_string(c.from) + " to " +
                 std::to_string(c.to));
    const Tensor x = random(c.shape, -1, 1, 1, Layout{c.from});
    const Tensor y = ops::to_layout(context_, x, Layout{c.to});
    ASSERT_EQ(y.layout(), Layout{c.to});
    for (std::int64_t n = 0; n < c.shape[0]; ++n) {
      for (std::int64_t h = 0; h < c.shape[1]; ++h) {
        for (std::int64_t w = 0; w < c.shape[2]; ++w) {
          for (std::int64_t channel = 0; channel < c.shape[3]; ++channel) {
            const auto at = [&](const Tensor& t) {
              return t
                  .values<float>()[reference::image_offset(c.shape, t.layout(), n, h, w, channel)];
            };
            ASSERT_EQ(at(x), at(y));
          }
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, ToLayoutReturnsTheImageItselfIfItHasTheLayout) {
  const Tensor x = random({1, 2, 2, 8}, 0, 1);
  EXPECT_EQ(ops::to_layout(context_, x, Layout{}).raw(), x.raw());
  EXPECT_EQ(ops::to_layout(context_, random({0, 2, 2, 8}, 0, 1), Layout{8}).shape(),
            Shape({0, 2, 2, 8}));
  EXPECT_THROW(ops::to_layout(context_, random({2, 8}, 0, 1), Layout{8}), InternalError);
}

TEST_F(ElementwiseTest, ToLayoutTakesOtherTypes) {
  const Tensor x = ops::convert(context_, random({2, 3, 3, 32}, -1, 1), DType::bf16);
  const Tensor back = ops::to_layout(context_, ops::to_layout(context_, x, Layout{16}), Layout{});
  EXPECT_TRUE(std::equal(static_cast<std::byte*>(x.raw()),
                         static_cast<std::byte*>(x.raw()) + x.bytes(),
                         static_cast<std::byte*>(back.raw())));
}

TEST_F(ElementwiseTest, WideningIsExactForAllHalfNumbers) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for_each_instruction_set([&] {
    const Tensor bf16 =
        ops::convert(context_, Tensor::wrap(all.data(), {65536}, DType::bf16), DType::f32);
    const Tensor f16 =
        ops::convert(context_, Tensor::wrap(all.data(), {65536}, DType::f16), DType::f32);
    const auto bits_bf16 = bits(bf16), bits_f16 = bits(f16);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(bits_bf16[i], std::bit_cast<std::uint32_t>(to_float(bfloat16{all[i]}))) << i;
      ASSERT_EQ(bits_f16[i], std::bit_cast<std::uint32_t>(to_float(float16{all[i]}))) << i;
    }
    // And back, but for signalling NaN, which become quiet.
    const Tensor again = ops::convert(context_, f16, DType::f16);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool nan = (i & 0x7C00) == 0x7C00 && (i & 0x3FF) != 0;
      ASSERT_EQ(static_cast<std::uint16_t*>(again.raw())[i], nan ? i | 0x200 : i);
    }
  });
}

TEST_F(ElementwiseTest, NarrowingRoundsAsTheScalarConversions) {
  std::vector<float> values;
  // Around every half number and every midpoint of two.
  for (std::uint32_t half = 0; half < 0x7C00; ++half) {
    const float low = to_float(float16{static_cast<std::uint16_t>(half)});
    const float high = to_float(float16{static_cast<std::uint16_t>(half + 1)});
    const float middle = std::isinf(high) ? 65520.0F : low + (high - low) / 2;
    for (const float v : {low, std::nextafter(middle, 0.0F), middle,
                          std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
      values.push_back(v);
      values.push_back(-v);
    }
  }
  RandomSequence numbers{RandomKey(1)};
  for (int i = 0; i < 200000; ++i) values.push_back(std::bit_cast<float>(numbers.next_u32()));
  for (const std::uint32_t special : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0x7F800001U,
                                      0xFFFFFFFFU, 0x00000001U, 0x807FFFFFU, 0x7F7FFFFFU}) {
    values.push_back(std::bit_cast<float>(special));
  }
  const Tensor x = of(values, {static_cast<std::int64_t>(values.size())});
  for_each_instruction_set([&] {
    const Tensor bf16 = ops::convert(context_, x, DType::bf16);
    const Tensor f16 = ops::convert(context_, x, DType::f16);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(bf16.values<bfloat16>()[i].bits, to_bfloat16(values[i]).bits) << values[i];
      ASSERT_EQ(f16.values<float16>()[i].bits, to_float16(values[i]).bits) << values[i];
    }
  });
}

TEST_F(ElementwiseTest, ConvertKnowsItsTypes) {
  const Tensor x = random({4}, 0, 1);
  EXPECT_EQ(ops::convert(context_, x, DType::f32).raw(), x.raw());
  EXPECT_THROW(ops::convert(context_, x, DType::i32), InternalError);
  EXPECT_EQ(ops::convert(context_, random({0}, 0, 1), DType::f16).elements(), 0);
}

TEST_F(ElementwiseTest, AllFiniteFindsOneBadValueAnywhere) {
  const float inf = std::numeric_limits<float>::infinity();
  for_each_instruction_set([&] {
    for (const std::size_t n : {1UL, 5UL, 16UL, 47UL, 70000UL}) {
      std::vector<float> values(n, -std::numeric_limits<float>::max());
      EXPECT_TRUE(ops::all_finite(values));
      for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
        for (const float bad : {inf, -inf, NAN, -NAN}) {
          const float good = values[at];
          values[at] = bad;
          EXPECT_FALSE(ops::all_finite(values)) << bad << " at " << at << " of " << n;
          values[at] = good;
        }
      }
    }
    EXPECT_TRUE(ops::all_finite({}));
  });
}

TEST_F(ElementwiseTest, ThreadsDoNotChangeBits) {
  OpContext three(allocator_, 3);
  const Tensor a = random({100, 1001}, -5, 5, 1);
  const Tensor b = random({1001}, -5, 5, 2);
  EXPECT_EQ(bits(ops::add(context_, a, b)), bits(ops::add(three, a, b)));
  EXPECT_EQ(bits(ops::add(context_, b, a)), bits(ops::add(three, b, a)));
  EXPECT_EQ(bits(ops::multiply(context_, a, a)), bits(ops::multiply(three, a, a)));
  EXPECT_EQ(bits(ops::scale(context_, a, 3)), bits(ops::scale(three, a, 3)));
}

}  // namespace
}  // namespace dtrain
