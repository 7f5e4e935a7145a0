#include "dtrain/tests/reference/batch_norm.h"

#include "support.h"

#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/norm.h"
#include "dtrain/tests/reference/finite_difference.h"

namespace dtrain {
namespace {

constexpr float epsilon = 1e-5f;

const std::vector<Shape> shapes{{2, 1},
                                {32, 10},
                                {5, 17},
                                {256, 33},
                                {600, 3},
                                {2, 1, 1, 1},
                                {1, 7, 7, 1},
                                {3, 5, 4, 3},
                                {4, 28, 28, 32},
                                {8, 14, 14, 64},
                                {2, 17, 19, 16},
                                {1, 3, 3, 100},
                                {2, 6, 6, 2048 / 16}};

std::vector<Layout> layouts_of(const Shape& shape) {
  std::vector<Layout> layouts{{0}};
  if (shape.rank() != 4) return layouts;
  for (const int block : {4, 8, 16, 25}) {
    if (shape[3] % block == 0) layouts.push_back({block});
  }
  return layouts;
}

class BatchNormTest : public DnnTest {
 protected:
  // Compares forward and backward with the reference, in all layouts.
  void check(const Shape& shape, const std::vector<double>& x, double tolerance) {
    const std::int64_t channels = shape[-1];
    const auto gamma = normal_values(channels, 2), beta = normal_values(channels, 3);
    const auto dy = normal_values(shape.elements(), 4);
    const auto forward = reference::batch_norm(x, gamma, beta, double(epsilon));
    const auto backward = reference::batch_norm_backward(x, dy, gamma, double(epsilon));
    const Tensor tgamma = tensor_of(gamma, {channels}), tbeta = tensor_of(beta, {channels});
    for (const Layout layout : layouts_of(shape)) {
      SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
      const Tensor tx = tensor_of(x, shape, layout), tdy = tensor_of(dy, shape, layout);
      const auto result = ops::batch_norm(context_, tx, tgamma, tbeta, epsilon);
      EXPECT_EQ(result.y.layout(), layout);
      EXPECT_LE(relative_error(values_of(result.mean), forward.mean), 1e-6);
      EXPECT_LE(relative_error(values_of(result.variance), forward.variance), tolerance);
      EXPECT_LE(relative_error(values_of(result.y), forward.y), tolerance);
      const Tensor dgamma = unwritten({channels}), dbeta = unwritten({channels});
      const Tensor dx =
          ops::batch_norm_backward(context_, tx, tdy, tgamma, result, epsilon, dgamma, dbeta);
      EXPECT_EQ(dx.layout(), layout);
      EXPECT_LE(relative_error(values_of(dx), backward.dx), tolerance);
      EXPECT_LE(relative_error(values_of(dgamma), backward.dgamma), tolerance);
      EXPECT_LE(relative_error(values_of(dbeta), backward.dbeta), tolerance);
    }
  }
};

TEST_F(BatchNormTest, AgreesWithTheReference) {
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(to_string(shape));
    check(shape, normal_values(shape.elements(), 1, 0.3, 2), 1e-5);
  }
}

// The sum of squares less the squared mean would leave nothing of this variance: 1e-4 of 1e8.
TEST_F(BatchNormTest, LargeMeanAndSmallVariance) {
  for (const Shape& shape : {Shape{4, 28, 28, 32}, Shape{300, 17}, Shape{2, 9, 9, 16}}) {
    SCOPED_TRACE(to_string(shape));
    check(shape, normal_values(shape.elements(), 1, 1e4, 1e-2), 1e-5);
  }
}

// The first value of a channel is nothing to rely on.
TEST_F(BatchNormTest, OneOutlier) {
  const Shape shape{4, 28, 28, 16};
  auto x = normal_values(shape.elements(), 1);
  for (std::size_t c = 0; c < 16; ++c) x[c] = 1e4;
  check(shape, x, 1e-5);
}

TEST_F(BatchNormTest, ConstantChannel) {
  const std::vector<double> x(64 * 3, 7.1f);
  const Tensor ones = tensor_of({1, 1, 1}, {3}), beta = tensor_of({1, 2, 3}, {3});
  const auto result = ops::batch_norm(context_, tensor_of(x, {64, 3}), ones, beta, epsilon);
  EXPECT_EQ(values_of(result.variance), (std::vector<double>{0, 0, 0}));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(values_of(result.y)[i], double(1 + i % 3)) << i;
  }
}

TEST_F(BatchNormTest, NanStaysInItsChannel) {
  auto x = normal_values(64 * 3, 1);
  x[1] = NAN;
  const Tensor ones = tensor_of({1, 1, 1}, {3});
  const auto result = ops::batch_norm(context_, tensor_of(x, {64, 3}), ones, ones, epsilon);
  const auto mean = values_of(result.mean), variance = values_of(result.variance);
  EXPECT_TRUE(std::isnan(mean[1]) && std::isnan(variance[1]));
  EXPECT_TRUE(std::isfinite(mean[0]) && std::isfinite(variance[2]));
}

TEST_F(BatchNormTest, InferenceAgreesWithTheReference) {
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(to_string(shape));
    const std::int64_t channels = shape[-1];
    const auto x = normal_values(shape.elements(), 1);
    const auto gamma = normal_values(channels, 2), beta = normal_values(channels, 3),
               mean = normal_values(channels, 4);
    auto variance = normal_values(channels, 5);
    for (double& v : variance) v = std::abs(v);
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % std::size_t(channels);
      y[i] = (x[i] - mean[c]) / std::sqrt(variance[c] + double(epsilon)) * gamma[c] + beta[c];
    }
    for (const Layout layout : layouts_of(shape)) {
      const Tensor ty = ops::batch_norm_inference(
          context_, tensor_of(x, shape, layout), tensor_of(gamma, {channels}),
          tensor_of(beta, {channels}), tensor_of(mean, {channels}), tensor_of(variance, {channels}),
          epsilon);
      EXPECT_LE(relative_error(values_of(ty), y), 1e-6);
    }
  }
}

TEST_F(BatchNormTest, ReferenceAgreesWithFiniteDifferences) {
  const auto x = normal_values(6 * 2, 1), gamma = normal_values(2, 2), beta = normal_values(2, 3),
             seed = normal_values(6 * 2, 4);
  const auto loss = [&](const reference::BatchNorm& forward) {
    double sum = 0;
    for (std::size_t i = 0; i < seed.size(); ++i) sum += forward.y[i] * seed[i];
    return sum;
  };
  const auto g = reference::batch_norm_backward(x, seed, gamma, 1e-5);
  using reference::finite_difference;
  EXPECT_LE(relative_error(g.dx, finite_difference(
                                     [&](const std::vector<double>& v) {
                                       return loss(reference::batch_norm(v, gamma, beta, 1e-5));
                                     },
                                     x)),
            1e-7);
  EXPECT_LE(relative_error(g.dgamma, finite_difference(
                                         [&](const std::vector<double>& v) {
                                           return loss(reference::batch_norm(x, v, beta, 1e-5));
                                         },
                                         gamma)),
            1e-7);
  EXPECT_LE(relative_error(g.dbeta, finite_difference(
                                        [&](const std::vector<double>& v) {
                                          return loss(reference::batch_norm(x, gamma, v, 1e-5));
                                        },
                                        beta)),
            1e-7);
}

Bytes forward_and_backward(OpContext& context, const Tensor& x, const Tensor& dy,
                           const Tensor& gamma, const Tensor& beta) {
  const auto result = ops::batch_norm(context, x, gamma, beta, epsilon);
  const Tensor dgamma = Tensor::empty(gamma.shape(), DType::f32, context.allocator(), "dgamma");
  const Tensor dbeta = Tensor::empty(gamma.shape(), DType::f32, context.allocator(), "dbeta");
  const Tensor dx = ops::batch_norm_backward(context, x, dy, gamma, result, epsilon, dgamma, dbeta);
  Bytes bytes;
  for (const Tensor& t : {result.y, result.mean, result.variance, dx, dgamma, dbeta}) {
    append_bytes(bytes, t);
  }
  return bytes;
}

TEST_F(BatchNormTest, SameBitsInEveryContextAndLane) {
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = tensor_of(normal_values(shape.elements(), 1), shape);
    const Tensor dy = tensor_of(normal_values(shape.elements(), 2), shape);
    const Tensor gamma = tensor_of(normal_values(shape[-1], 3), {shape[-1]});
    expect_same_bits_everywhere(
        [&](OpContext& context) { return forward_and_backward(context, x, dy, gamma, gamma); });
  }
}

TEST_F(BatchNormTest, WithReluHasTheBitsOfBoth) {
  auto all = shapes;
  all.push_back({0, 3, 3, 16});
  for (const Shape& shape : all) {
    SCOPED_TRACE(to_string(shape));
    const std::int64_t channels = shape[-1];
    const auto x = normal_values(shape.elements(), 1, 100, 0.1);
    const auto dy = normal_values(shape.elements(), 2);
    const Tensor gamma = tensor_of(normal_values(channels, 3), {channels});
    const Tensor beta = tensor_of(normal_values(channels, 4), {channels});
    for (const Layout layout : layouts_of(shape)) {
      SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
      const Tensor tx = tensor_of(x, shape, layout), tdy = tensor_of(dy, shape, layout);
      const auto apart = ops::batch_norm(context_, tx, gamma, beta, epsilon);
      const Tensor y = ops::relu(context_, apart.y);
      auto fused = ops::batch_norm_relu(context_, tx, gamma, beta, epsilon);
      Bytes expected, found;
      for (const Tensor& t : {y, apart.mean, apart.variance, apart.mean_rest}) {
        append_bytes(expected, t);
      }
      for (const Tensor& t : {fused.y, fused.mean, fused.variance, fused.mean_rest}) {
        append_bytes(found, t);
      }
      const Tensor dgamma = unwritten({channels}), dbeta = unwritten({channels});
      append_bytes(expected,
                   ops::batch_norm_backward(context_, tx, ops::relu_backward(context_, y, tdy),
                                            gamma, apart, epsilon, dgamma, dbeta));
      append_bytes(expected, dgamma);
      append_bytes(expected, dbeta);
      fused.y = {};
      const Tensor dgamma_fused = unwritten({channels}), dbeta_fused = unwritten({channels});
      append_bytes(found, ops::batch_norm_relu_backward(context_, tx, tdy, gamma, beta, fused,
                                                        epsilon, dgamma_fused, dbeta_fused));
      append_bytes(found, dgamma_fused);
      append_bytes(found, dbeta_fused);
      append_bytes(expected, ops::relu(context_, ops::batch_norm_inference(
                                                     context_, tx, gamma, beta, apart.mean,
                                                     apart.variance, epsilon)));
      append_bytes(found, ops::batch_norm_relu_inference(context_, tx, gamma, beta, apart.mean,
                                                         apart.variance, epsilon));
      EXPECT_TRUE(found == expected);
    }
  }
}

TEST_F(BatchNormTest, WithResidualAndReluHasTheBitsOfAllThree) {
  auto all = shapes;
  all.push_back({0, 3, 3, 16});
  for (const Shape& shape : all) {
    SCOPED_TRACE(to_string(shape));
    const std::int64_t channels = shape[-1];
    const Tensor gamma = tensor_of(normal_values(channels, 3), {channels});
    const Tensor beta = tensor_of(normal_values(channels, 4), {channels});
    for (const Layout layout : layouts_of(shape)) {
      SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
      const Tensor x = tensor_of(normal_values(shape.elements(), 1, 100, 0.1), shape, layout);
      const Tensor residual = tensor_of(normal_values(shape.elements(), 5), shape, layout);
      const Tensor dy = tensor_of(normal_values(shape.elements(), 2), shape, layout);
      const auto apart = ops::batch_norm(context_, x, gamma, beta, epsilon);
      const Tensor y = ops::relu(context_, ops::add(context_, apart.y, residual));
      const auto moments = ops::batch_moments(context_, ops::channel_statistics(context_, x));
      const Tensor fused =
          ops::batch_norm_apply(context_, x, residual, gamma, beta, moments, epsilon, true);
      Bytes expected, found;
      append_bytes(expected, y);
      append_bytes(found, fused);

      const Tensor g = ops::relu_backward(context_, y, dy);
      const Tensor dgamma = unwritten({channels}), dbeta = unwritten({channels});
      append_bytes(expected,
                   ops::batch_norm_backward(context_, x, g, gamma, apart, epsilon, dgamma, dbeta));
      append_bytes(expected, g);
      append_bytes(expected, dgamma);
      append_bytes(expected, dbeta);
      // g over dy, and dx over g.
      const auto sums = ops::batch_norm_gradient_sums(context_, x, dy, gamma, beta, moments,
                                                      epsilon, ops::BehindNorm::output, fused, dy);
      const Tensor dgamma_fused = unwritten({channels}), dbeta_fused = unwritten({channels});
      ops::batch_norm_parameter_gradients(sums, moments, epsilon, dgamma_fused, dbeta_fused);
      Bytes g_fused;
      append_bytes(g_fused, dy);
      ops::batch_norm_input_gradient(context_, x, dy, gamma, beta, moments, epsilon,
                                     ops::BehindNorm::nothing, sums, shape.elements() / channels,
                                     dy);
      append_bytes(found, dy);
      found.insert(found.end(), g_fused.begin(), g_fused.end());
      append_bytes(found, dgamma_fused);
      append_bytes(found, dbeta_fused);
      EXPECT_TRUE(found == expected);
    }
  }
}

TEST_F(BatchNormTest, SameBitsOnAnyNumberOfThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see the barriers of OpenMP";
#endif
  const Shape shape{8, 28, 28, 32};
  const Tensor x = tensor_of(normal_values(shape.elements(), 1), shape, {16});
  const Tensor dy = tensor_of(normal_values(shape.elements(), 2), shape, {16});
  const Tensor gamma = tensor_of(normal_values(32, 3), {32});
  const Bytes one = forward_and_backward(context_, x, dy, gamma, gamma);
  for (const int threads : {2, 3}) {
    OpContext team(allocator_, threads);
    team.bind_to_this_thread();
    EXPECT_TRUE(forward_and_backward(team, x, dy, gamma, gamma) == one) << threads;
  }
  context_.bind_to_this_thread();
}

TEST_F(BatchNormTest, EmptyBatch) {
  for (const Shape& shape : {Shape{0, 3}, Shape{0, 4, 4, 16}}) {
    for (const Layout layout : layouts_of(shape)) {
      const std::int64_t channels = shape[-1];
      const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test", layout);
      const Tensor gamma = tensor_of(normal_values(channels, 1), {channels});
      const auto result = ops::batch_norm(context_, x, gamma, gamma, epsilon);
      EXPECT_EQ(result.y.shape(), shape);
      const std::vector<double> zeros(std::size_t(channels), 0.0);
      EXPECT_EQ(values_of(result.mean), zeros);
      EXPECT_EQ(values_of(result.variance), zeros);
      const Tensor dgamma = unwritten({channels}), dbeta = unwritten({channels});
      EXPECT_EQ(
          ops::batch_norm_backward(context_, x, x, gamma, result, epsilon, dgamma, dbeta).shape(),
          shape);
      EXPECT_EQ(values_of(dgamma), zeros);
      EXPECT_EQ(values_of(dbeta), zeros);
    }
  }
}

TEST_F(BatchNormTest, WarmCallsAskTheSystemForNothing) {
  const Shape shape{4, 14, 14, 32};
  const Tensor x = tensor_of(normal_values(shape.elements(), 1), shape);
  const Tensor gamma = tensor_of(normal_values(32, 3), {32});
  forward_and_backward(context_, x, x, gamma, gamma);
  const auto before = allocator_.stats().system_calls;
  for (int i = 0; i < 3; ++i) forward_and_backward(context_, x, x, gamma, gamma);
  EXPECT_EQ(allocator_.stats().system_calls, before);
}

}  // namespace
}  // namespace dtrain
