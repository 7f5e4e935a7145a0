#include "dtrain/core/ops/norm_pool.h"

#include "support.h"

#include "dtrain/core/ops/pool.h"

namespace dtrain {
namespace {

constexpr float epsilon = 1e-5f;
constexpr ops::Pool2dOptions pool{.kernel = 2, .stride = 2};

const std::vector<Shape> shapes{{2, 2, 2, 1},   {3, 8, 8, 32},  {2, 7, 5, 17}, {1, 9, 4, 16},
                                {2, 6, 11, 48}, {4, 40, 40, 8}, {0, 4, 4, 16}};

std::vector<Layout> layouts_of(const Shape& shape) {
  std::vector<Layout> layouts{{0}};
  for (const int block : {8, 16}) {
    if (shape[3] % block == 0) layouts.push_back({block});
  }
  return layouts;
}

class NormPoolTest : public DnnTest {};

// Values that are equal within a window too: whole numbers, few of them.
TEST_F(NormPoolTest, IsBatchNormReluAndPoolOneAfterTheOther) {
  for (const bool ties : {false, true}) {
    for (const Shape& shape : shapes) {
      const std::int64_t channels = shape[3];
      auto x = normal_values(shape.elements(), 1, 3, 2);
      if (ties) {
        for (double& value : x) value = std::round(value);
      }
      const Tensor gamma = tensor_of(normal_values(channels, 3), {channels});
      const Tensor beta = tensor_of(normal_values(channels, 4), {channels});
      for (const Layout layout : layouts_of(shape)) {
        SCOPED_TRACE(fmt::format("{} in blocks of {}", to_string(shape), layout.channel_block));
        const Tensor tx = tensor_of(x, shape, layout);
        const auto apart = ops::batch_norm_relu(context_, tx, gamma, beta, epsilon);
        const auto pooled = ops::max_pool2d(context_, apart.y, pool);
        const Tensor y = ops::batch_norm_relu_max_pool(context_, tx, gamma, beta, apart, epsilon);
        EXPECT_EQ(y.shape(), pooled.y.shape());
        EXPECT_EQ(y.layout(), layout);
        EXPECT_EQ(values_of(y), values_of(pooled.y));

        const Tensor dy = tensor_of(normal_values(y.elements(), 5), y.shape(), layout);
        const Tensor dgamma = unwritten({channels}), dbeta = unwritten({channels});
        const Tensor between = ops::max_pool2d_backward(context_, dy, pooled.index, shape, pool);
        const Tensor expected = ops::batch_norm_relu_backward(context_, tx, between, gamma, beta,
                                                              apart, epsilon, dgamma, dbeta);
        const auto sums = ops::batch_norm_relu_max_pool_gradient_sums(context_, tx, y, dy, gamma,
                                                                      beta, apart, epsilon);
        const Tensor dgamma_fused = unwritten({channels}), dbeta_fused = unwritten({channels});
        ops::batch_norm_parameter_gradients(sums, apart, epsilon, dgamma_fused, dbeta_fused);
        const Tensor dx = ops::batch_norm_relu_max_pool_input_gradient(
            context_, tx, y, dy, gamma, beta, apart, epsilon, sums,
            channels == 0 ? 0 : shape.elements() / channels);
        EXPECT_EQ(dx.layout(), layout);
        EXPECT_LE(relative_error(values_of(dx), values_of(expected)), 2e-6);
        EXPECT_LE(relative_error(values_of(dgamma_fused), values_of(dgamma)), 2e-6);
        EXPECT_LE(relative_error(values_of(dbeta_fused), values_of(dbeta)), 2e-6);
      }
    }
  }
}

TEST_F(NormPoolTest, NanPassesThrough) {
  const Shape shape{1, 2, 2, 1};
  const Tensor one = tensor_of({1}, {1});
  const auto moments = ops::batch_moments(context_, {.count = 4, .mean = {0}, .squares = {4}});
  const Tensor y = ops::batch_norm_relu_max_pool(context_, tensor_of({1, NAN, 2, 0}, shape), one,
                                                 one, moments, epsilon);
  EXPECT_TRUE(std::isnan(values_of(y)[0]));
}

TEST_F(NormPoolTest, SameBitsInEveryContextAndOnAnyNumberOfThreads) {
  const Shape shape{4, 40, 41, 32};
  const Tensor x = tensor_of(normal_values(shape.elements(), 1), shape, {16});
  const Tensor gamma = tensor_of(normal_values(32, 3), {32});
  const auto run = [&](OpContext& context) {
    const auto moments = ops::batch_moments(context, ops::channel_statistics(context, x));
    const Tensor y = ops::batch_norm_relu_max_pool(context, x, gamma, gamma, moments, epsilon);
    const auto sums = ops::batch_norm_relu_max_pool_gradient_sums(context, x, y, y, gamma, gamma,
                                                                  moments, epsilon);
    Bytes bytes;
    append_bytes(bytes, y);
    append_bytes(bytes, ops::batch_norm_relu_max_pool_input_gradient(
                            context, x, y, y, gamma, gamma, moments, epsilon, sums, 4 * 40 * 41));
    return bytes;
  };
  expect_same_bits_everywhere(run);
  OpContext two(allocator_, 2);
  two.bind_to_this_thread();
  const Bytes on_two = run(two);
  context_.bind_to_this_thread();
  EXPECT_TRUE(run(context_) == on_two);
}

}  // namespace
}  // namespace dtrain
