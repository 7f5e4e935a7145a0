#include "dtrain/core/ops/shape_ops.h"

#include <array>

#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class ShapeOpsTest : public OpsTest {
 protected:
  // 0, 1, 2, ...
  Tensor counted(const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test");
    float next = 0;
    for (float& value : x.values<float>()) value = next++;
    return x;
  }
  static float at(const Tensor& x, std::array<std::int64_t, 4> index) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < 4; ++axis) {
      offset = offset * x.shape()[axis] + index[static_cast<std::size_t>(axis)];
    }
    return x.values<float>()[static_cast<std::size_t>(offset)];
  }
  template <typename Body>
  static void for_each_index(const Shape& shape, const Body& body) {
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      for (std::int64_t j = 0; j < shape[1]; ++j) {
        for (std::int64_t k = 0; k < shape[2]; ++k) {
          for (std::int64_t l = 0; l < shape[3]; ++l) body(std::array{i, j, k, l});
        }
      }
    }
  }
};

TEST_F(ShapeOpsTest, TransposeExchangesAnyTwoAxes) {
  OpContext three(allocator_, 3);
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 33, 2, 17}, Shape{3, 1, 40, 70}}) {
    const Tensor x = counted(shape);
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < 4; ++b) {
        const Tensor y = ops::transpose(context_, x, a, b - 4);
        for_each_index(shape, [&](std::array<std::int64_t, 4> index) {
          const float expected = at(x, index);
          std::swap(index[static_cast<std::size_t>(a)], index[static_cast<std::size_t>(b)]);
          ASSERT_EQ(at(y, index), expected) << a << " " << b;
        });
        EXPECT_EQ(bits(ops::transpose(three, x, a, b)), bits(y));
        EXPECT_EQ(bits(ops::transpose(context_, y, a, b)), bits(x));
      }
    }
  }
}

TEST_F(ShapeOpsTest, SlicesPutTogetherAreTheWhole) {
  const Tensor x = counted({3, 4, 5, 6});
  for (int axis = 0; axis < 4; ++axis) {
    const std::int64_t size = x.shape()[axis];
    const std::array parts{ops::slice(context_, x, axis, 0, 1), ops::slice(context_, x, axis, 1, 1),
                           ops::slice(context_, x, axis - 4, 1, size)};
    EXPECT_EQ(parts[1].elements(), 0);
    const Tensor whole = ops::concat(context_, parts, axis);
    EXPECT_EQ(whole.shape(), x.shape());
    EXPECT_EQ(bits(whole), bits(x));
  }
}

TEST_F(ShapeOpsTest, SliceBackwardPutsItsGradientAmongZeros) {
  const Shape shape{3, 4, 5, 6};
  for (int axis = 0; axis < 4; ++axis) {
    const Tensor dy = ops::slice(context_, random(shape, 1, 2), axis, 1, 3);
    const Tensor dx = ops::slice_backward(context_, dy, shape, axis, 1);
    EXPECT_EQ(bits(ops::slice(context_, dx, axis, 1, 3)), bits(dy));
    double sum = 0, all = 0;
    for (const float value : dy.values<float>()) sum += value;
    for (const float value : dx.values<float>()) all += value;
    EXPECT_DOUBLE_EQ(all, sum);
  }
}

TEST_F(ShapeOpsTest, RefuseWhatDoesNotFit) {
  const Tensor x = counted({2, 3}), y = counted({3, 3});
  EXPECT_THROW(ops::transpose(context_, x, 0, 2), InternalError);
  EXPECT_THROW(ops::slice(context_, x, 1, 2, 4), InternalError);
  EXPECT_THROW(ops::concat(context_, std::array{x, y}, 1), InternalError);
  EXPECT_EQ(ops::concat(context_, std::array{x, y}, 0).shape(), (Shape{5, 3}));
}

}  // namespace
}  // namespace dtrain
