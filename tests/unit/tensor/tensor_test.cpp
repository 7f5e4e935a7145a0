#include "dtrain/core/tensor/tensor.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

class TensorTest : public testing::Test {
 protected:
  Allocator allocator_{"test"};
};

TEST_F(TensorTest, CopiesShareTheirMemory) {
  const Tensor a = Tensor::zeros({2, 3}, DType::f32, allocator_, "a");
  EXPECT_FALSE(a.shared());
  const Tensor b = a;
  EXPECT_TRUE(a.shared());
  b.values<float>()[4] = 5;
  EXPECT_EQ(a.values<float>()[4], 5);
  EXPECT_EQ(allocator_.stats().system_calls, 1U);
}

TEST_F(TensorTest, MemoryIsFreedWithTheLastView) {
  Tensor row;
  {
    const Tensor a = Tensor::zeros({4, 100}, DType::f32, allocator_, "a");
    row = a.rows(1, 2);
  }
  EXPECT_GT(allocator_.stats().allocated, 0U);
  row = Tensor();
  EXPECT_EQ(allocator_.stats().allocated, 0U);
  EXPECT_FALSE(row.defined());
}

TEST_F(TensorTest, RowsAndReshapeAreViews) {
  const Tensor a = Tensor::empty({4, 6}, DType::f32, allocator_, "a");
  std::iota(a.values<float>().begin(), a.values<float>().end(), 0.0F);
  const Tensor rows = a.rows(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 6}));
  EXPECT_EQ(rows.values<float>()[0], 6);
  EXPECT_EQ(rows.values<float>().size(), 12U);
  EXPECT_EQ(rows.raw(), a.data<float>() + 6);
  EXPECT_EQ(rows.rows(1, 2).values<float>()[0], 12);
  EXPECT_EQ(a.rows(2, 2).elements(), 0);
  const Tensor cube = a.reshape({2, 3, 4});
  EXPECT_EQ(cube.raw(), a.raw());
  EXPECT_EQ(cube.shape(), (Shape{2, 3, 4}));
  EXPECT_THROW(a.reshape({5, 5}), InternalError);
  EXPECT_THROW(a.rows(3, 5), InternalError);
  EXPECT_THROW(a.rows(-1, 2), InternalError);
  EXPECT_THROW(a.rows(3, 2), InternalError);
}

TEST_F(TensorTest, RowsOfAnImageInChannelBlocks) {
  const Tensor a = Tensor::zeros({3, 2, 2, 16}, DType::f32, allocator_, "a", {8});
  const Tensor rows = a.rows(1, 3);
  EXPECT_EQ(rows.layout(), Layout{8});
  EXPECT_EQ(rows.raw(), a.data<float>() + 64);
  EXPECT_THROW(a.reshape({3, 64}), InternalError);
}

TEST_F(TensorTest, WrapViewsMemoryOfTheCaller) {
  std::vector<float> values = {1, 2, 3, 4};
  const Tensor a = Tensor::wrap(std::span(values), {2, 2});
  a.values<float>()[3] = 9;
  EXPECT_EQ(values[3], 9);
  // The caller holds the memory too: nobody may take it for his own.
  EXPECT_TRUE(a.shared());
  EXPECT_THROW(Tensor::wrap(std::span(values), {3}), InternalError);
}

TEST_F(TensorTest, ElementsHaveTheirType) {
  const Tensor a = Tensor::zeros({3}, DType::i64, allocator_, "labels");
  EXPECT_EQ(a.bytes(), 24U);
  EXPECT_EQ(a.values<std::int64_t>().size(), 3U);
  EXPECT_THROW(a.values<float>(), InternalError);
  EXPECT_THROW(a.values<std::int32_t>(), InternalError);
}

TEST_F(TensorTest, EmptyTensorsAreTensors) {
  const Tensor a = Tensor::empty({0, 7}, DType::f32, allocator_, "none");
  EXPECT_TRUE(a.defined());
  EXPECT_EQ(a.elements(), 0);
  EXPECT_FALSE(Tensor().defined());
  const Tensor scalar = Tensor::zeros({}, DType::f32, allocator_, "scalar");
  EXPECT_EQ(scalar.elements(), 1);
}

TEST_F(TensorTest, OnlyImagesWithFittingChannelsAreBlocked) {
  EXPECT_THROW(Tensor::empty({2, 2, 2, 12}, DType::f32, allocator_, "x", {8}), InternalError);
  EXPECT_THROW(Tensor::empty({2, 16}, DType::f32, allocator_, "x", {8}), InternalError);
  EXPECT_THROW(Tensor::empty({2, 2, 2, 8}, DType::f32, allocator_, "x", {-8}), InternalError);
}

TEST(Shape, SizesCountFromBothEnds) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.elements_per_row(), 15);
  EXPECT_EQ(shape.with_first(7), (Shape{7, 3, 5}));
  EXPECT_EQ(to_string(shape), "[2, 3, 5]");
  EXPECT_THROW(shape[3], InternalError);
  EXPECT_THROW(shape[-4], InternalError);
}

TEST(Shape, AScalarHasOneElement) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(to_string(Shape()), "[]");
  EXPECT_THROW(Shape().with_first(2), InternalError);
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), InternalError);
  EXPECT_THROW((Shape{2, -1}), InternalError);
  EXPECT_THROW((Shape{std::numeric_limits<std::int64_t>::max(), 2}.elements()), InternalError);
  // Elements in range whose bytes are not.
  EXPECT_THROW((Shape{std::int64_t{1} << 31, std::int64_t{1} << 31}.elements()), InternalError);
}

}  // namespace
}  // namespace dtrain
