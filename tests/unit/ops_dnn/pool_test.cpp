#include "dtrain/core/ops/pool.h"

#include "support.h"

#include "dtrain/tests/reference/pool.h"

namespace dtrain {
namespace {

using reference::PoolSizes;

const std::vector<PoolSizes> cases{
    {.n = 1, .h = 1, .w = 1, .c = 1, .kernel = 1, .stride = 1},
    {.n = 2, .h = 28, .w = 28, .c = 32},
    {.n = 2, .h = 14, .w = 14, .c = 64},
    {.n = 3, .h = 7, .w = 5, .c = 3},
    {.n = 2, .h = 9, .w = 9, .c = 17, .kernel = 3, .stride = 2, .padding = 1},
    {.n = 2, .h = 8, .w = 8, .c = 48, .kernel = 3, .stride = 2, .padding = 1},
    {.n = 2, .h = 6, .w = 7, .c = 16, .kernel = 3, .stride = 1, .padding = 1},
    {.n = 2, .h = 6, .w = 7, .c = 5, .kernel = 2, .stride = 3},
    {.n = 1, .h = 1, .w = 1, .c = 8, .kernel = 2, .stride = 2, .padding = 1},
    {.n = 1, .h = 20, .w = 19, .c = 2, .kernel = 18, .stride = 1},
    {.n = 1, .h = 5, .w = 5, .c = 100, .kernel = 5, .stride = 5},
};

std::string name_of(const PoolSizes& s) {
  return fmt::format("n {} {}x{}x{} kernel {} stride {} padding {}", s.n, s.h, s.w, s.c, s.kernel,
                     s.stride, s.padding);
}

ops::Pool2dOptions options_of(const PoolSizes& s) {
  return {int(s.kernel), int(s.stride), int(s.padding)};
}

Shape x_shape(const PoolSizes& s) {
  return {s.n, s.h, s.w, s.c};
}
Shape y_shape(const PoolSizes& s) {
  return {s.n, s.out(s.h), s.out(s.w), s.c};
}

std::vector<Layout> layouts_of(std::int64_t channels) {
  std::vector<Layout> layouts{{0}};
  for (const int block : {4, 8, 16, 25}) {
    if (channels % block == 0) layouts.push_back({block});
  }
  return layouts;
}

std::vector<std::int64_t> index_values(const Tensor& index) {
  std::vector<std::int64_t> values(std::size_t(index.elements()));
  for_each_place(index, [&](std::size_t plain, std::size_t memory) {
    values[plain] = index.dtype() == DType::u8 ? index.values<std::uint8_t>()[memory]
                                               : index.values<std::int32_t>()[memory];
  });
  return values;
}

class PoolTest : public DnnTest {};

TEST_F(PoolTest, MaxIsExactAndItsGradientGoesToTheWinner) {
  for (const PoolSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    // Few different values, so that windows hold equals.
    auto x = normal_values(x_shape(s).elements(), 1);
    for (double& value : x) value = std::round(2 * value);
    const auto dy = normal_values(y_shape(s).elements(), 2);
    const auto expected = reference::max_pool2d(s, x);
    const auto expected_dx = reference::max_pool2d_backward(expected, dy, x.size());
    for (const Layout layout : layouts_of(s.c)) {
      SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
      const auto result =
          ops::max_pool2d(context_, tensor_of(x, x_shape(s), layout), options_of(s));
      EXPECT_EQ(result.y.shape(), y_shape(s));
      EXPECT_EQ(result.y.layout(), layout);
      EXPECT_EQ(values_of(result.y), expected.y);
      EXPECT_EQ(index_values(result.index), expected.window_element);
      const Tensor dx = ops::max_pool2d_backward(context_, tensor_of(dy, y_shape(s), layout),
                                                 result.index, x_shape(s), options_of(s));
      EXPECT_LE(relative_error(values_of(dx), expected_dx), 1e-6);
    }
  }
}

TEST_F(PoolTest, MaxOfNanIsNan) {
  PoolSizes s{.n = 1, .h = 4, .w = 4, .c = 16};
  auto x = normal_values(x_shape(s).elements(), 1);
  for (std::size_t c = 0; c < 16; ++c) x[(c % 4) * 16 + c] = NAN;  // of the first row
  x[5] = INFINITY;
  const auto expected = reference::max_pool2d(s, x);
  const auto result = ops::max_pool2d(context_, tensor_of(x, x_shape(s)), options_of(s));
  const auto y = values_of(result.y);
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(std::isnan(y[i]), std::isnan(expected.y[i])) << i;
    if (!std::isnan(y[i])) {
      EXPECT_EQ(y[i], expected.y[i]) << i;
    }
  }
  EXPECT_EQ(index_values(result.index), expected.window_element);
}

TEST_F(PoolTest, MaxOfNothingButMinusInfinityIsTheFirst) {
  const PoolSizes s{.n = 1, .h = 3, .w = 3, .c = 2, .kernel = 3, .stride = 2, .padding = 1};
  const std::vector<double> x(18, -INFINITY);
  const auto result = ops::max_pool2d(context_, tensor_of(x, x_shape(s)), options_of(s));
  EXPECT_EQ(index_values(result.index), reference::max_pool2d(s, x).window_element);
}

TEST_F(PoolTest, AverageAgreesWithTheReference) {
  for (const PoolSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    const auto x = normal_values(x_shape(s).elements(), 1);
    const auto dy = normal_values(y_shape(s).elements(), 2);
    std::vector<double> y(dy.size()), dx(x.size());
    reference::for_each_average(s, [&](std::size_t at_x, std::size_t at_y, double divisor) {
      y[at_y] += x[at_x] / divisor;
      dx[at_x] += dy[at_y] / divisor;
    });
    for (const Layout layout : layouts_of(s.c)) {
      SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
      const Tensor ty = ops::avg_pool2d(context_, tensor_of(x, x_shape(s), layout), options_of(s));
      EXPECT_LE(relative_error(values_of(ty), y), 2e-6);
      const Tensor tdx = ops::avg_pool2d_backward(context_, tensor_of(dy, y_shape(s), layout),
                                                  x_shape(s), options_of(s));
      EXPECT_LE(relative_error(values_of(tdx), dx), 2e-6);
    }
  }
}

TEST_F(PoolTest, AdaptiveAverageAgreesWithTheReference) {
  struct Case {
    Shape x;
    int out_h, out_w;
  };
  for (const auto& [shape, out_h, out_w] :
       {Case{{2, 7, 7, 64}, 1, 1}, Case{{2, 7, 5, 3}, 3, 2}, Case{{1, 4, 4, 17}, 4, 4},
        Case{{2, 3, 2, 16}, 5, 7}, Case{{1, 1, 1, 1}, 1, 1}, Case{{2, 56, 56, 16}, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{} to {}x{}", to_string(shape), out_h, out_w));
    const Shape out{shape[0], out_h, out_w, shape[3]};
    const auto x = normal_values(shape.elements(), 1, 0.5);
    const auto dy = normal_values(out.elements(), 2);
    std::vector<double> y(dy.size()), dx(x.size());
    reference::for_each_adaptive_average(shape[0], shape[1], shape[2], shape[3], out_h, out_w,
                                         [&](std::size_t at_x, std::size_t at_y, double divisor) {
                                           y[at_y] += x[at_x] / divisor;
                                           dx[at_x] += dy[at_y] / divisor;
                                         });
    for (const Layout layout : layouts_of(shape[3])) {
      SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
      const Tensor ty =
          ops::adaptive_avg_pool2d(context_, tensor_of(x, shape, layout), out_h, out_w);
      EXPECT_EQ(ty.shape(), out);
      EXPECT_LE(relative_error(values_of(ty), y), 2e-6);
      const Tensor tdx =
          ops::adaptive_avg_pool2d_backward(context_, tensor_of(dy, out, layout), shape);
      EXPECT_LE(relative_error(values_of(tdx), dx), 2e-6);
    }
  }
}

TEST_F(PoolTest, SameBitsInEveryContextAndLane) {
  for (const PoolSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    const Tensor x = tensor_of(normal_values(x_shape(s).elements(), 1), x_shape(s));
    const Tensor dy = tensor_of(normal_values(y_shape(s).elements(), 2), y_shape(s));
    expect_same_bits_everywhere([&](OpContext& context) {
      Bytes bytes;
      const auto max = ops::max_pool2d(context, x, options_of(s));
      append_bytes(bytes, max.y);
      append_bytes(bytes, max.index);
      append_bytes(bytes,
                   ops::max_pool2d_backward(context, dy, max.index, x.shape(), options_of(s)));
      append_bytes(bytes, ops::avg_pool2d(context, x, options_of(s)));
      append_bytes(bytes, ops::avg_pool2d_backward(context, dy, x.shape(), options_of(s)));
      append_bytes(bytes, ops::adaptive_avg_pool2d(context, x, 1, 1));
      return bytes;
    });
  }
}

TEST_F(PoolTest, EmptyBatch) {
  const Shape x{0, 6, 6, 8}, y{0, 3, 3, 8};
  const auto max = ops::max_pool2d(context_, unwritten(x), {});
  EXPECT_EQ(max.y.shape(), y);
  EXPECT_EQ(ops::max_pool2d_backward(context_, unwritten(y), max.index, x, {}).shape(), x);
  EXPECT_EQ(ops::avg_pool2d(context_, unwritten(x), {}).shape(), y);
  EXPECT_EQ(ops::avg_pool2d_backward(context_, unwritten(y), x, {}).shape(), x);
  EXPECT_EQ(ops::adaptive_avg_pool2d(context_, unwritten(x), 1, 1).shape(), (Shape{0, 1, 1, 8}));
  EXPECT_EQ(ops::adaptive_avg_pool2d_backward(context_, unwritten({0, 1, 1, 8}), x).shape(), x);
}

TEST_F(PoolTest, RefusesWhatHasNoOutput) {
  EXPECT_THROW(ops::max_pool2d(context_, unwritten({1, 1, 4, 2}), {}), InternalError);
  EXPECT_THROW(ops::avg_pool2d(context_, unwritten({1, 4, 4, 2}), {.kernel = 2, .padding = 2}),
               InternalError);
}

}  // namespace
}  // namespace dtrain
