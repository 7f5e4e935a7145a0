#include "dtrain/core/ops/group_norm.h"

#include "support.h"

#include "dtrain/tests/reference/finite_difference.h"
#include "dtrain/tests/reference/group_norm.h"

namespace dtrain {
namespace {

constexpr float epsilon = 1e-5f;

struct Case {
  Shape shape;
  int groups;
};

const std::vector<Case> cases{{{4, 6}, 2},         {{3, 35}, 5},         {{2, 7, 5, 33}, 11},
                              {{3, 9, 7, 32}, 4},  {{2, 17, 19, 48}, 3}, {{2, 8, 8, 64}, 32},
                              {{1, 3, 3, 100}, 1}, {{2, 20, 20, 16}, 16}};

std::vector<Layout> layouts_of(const Shape& shape) {
  std::vector<Layout> layouts{{0}};
  for (const int block : {8, 16, 25}) {
    if (shape.rank() == 4 && shape[3] % block == 0) layouts.push_back({block});
  }
  return layouts;
}

class GroupNormTest : public DnnTest {};

TEST_F(GroupNormTest, AgreesWithTheReference) {
  for (const Case& c : cases) {
    for (const double mean : {0.3, 1e3}) {
      SCOPED_TRACE(fmt::format("{} in {} groups, mean {}", to_string(c.shape), c.groups, mean));
      const std::int64_t channels = c.shape[-1];
      const auto samples = std::size_t(c.shape[0]);
      const auto pixels = std::size_t(c.shape.elements() / c.shape[0] / channels);
      const auto x = normal_values(c.shape.elements(), 1, mean, 2);
      const auto dy = normal_values(c.shape.elements(), 4);
      const auto gamma = normal_values(channels, 2), beta = normal_values(channels, 3);
      const auto y = reference::group_norm(x, samples, pixels, gamma, beta, c.groups, epsilon);
      const auto expected =
          reference::group_norm_backward(x, dy, samples, pixels, gamma, c.groups, epsilon);
      const Tensor tgamma = tensor_of(gamma, {channels}), tbeta = tensor_of(beta, {channels});
      for (const Layout layout : layouts_of(c.shape)) {
        SCOPED_TRACE(fmt::format("blocks of {}", layout.channel_block));
        const Tensor tx = tensor_of(x, c.shape, layout), tdy = tensor_of(dy, c.shape, layout);
        auto result = ops::group_norm(context_, tx, tgamma, tbeta, c.groups, epsilon);
        EXPECT_LE(relative_error(values_of(result.y), y), 1e-5);
        result.y = {};
        const Tensor dgamma = unwritten({channels}), dbeta = unwritten({channels});
        const Tensor dx = ops::group_norm_backward(context_, tx, tdy, tgamma, result, c.groups,
                                                   epsilon, dgamma, dbeta);
        EXPECT_LE(relative_error(values_of(dx), expected.dx), 1e-5);
        EXPECT_LE(relative_error(values_of(dgamma), expected.dgamma), 1e-5);
        EXPECT_LE(relative_error(values_of(dbeta), expected.dbeta), 1e-5);
      }
    }
  }
}

TEST_F(GroupNormTest, ReferenceAgreesWithFiniteDifferences) {
  constexpr std::size_t samples = 2, pixels = 3, groups = 2;
  const auto x = normal_values(samples * pixels * 4, 1), gamma = normal_values(4, 2),
             beta = normal_values(4, 3), seed = normal_values(samples * pixels * 4, 4);
  const auto loss = [&](const std::vector<double>& x_, const std::vector<double>& gamma_,
                        const std::vector<double>& beta_) {
    const auto y = reference::group_norm(x_, samples, pixels, gamma_, beta_, groups, 1e-5);
    double sum = 0;
    for (std::size_t i = 0; i < seed.size(); ++i) sum += y[i] * seed[i];
    return sum;
  };
  const auto g = reference::group_norm_backward(x, seed, samples, pixels, gamma, groups, 1e-5);
  using reference::finite_difference;
  using Values = std::vector<double>;
  EXPECT_LE(relative_error(
                g.dx, finite_difference([&](const Values& v) { return loss(v, gamma, beta); }, x)),
            1e-7);
  EXPECT_LE(relative_error(g.dgamma, finite_difference(
                                         [&](const Values& v) { return loss(x, v, beta); }, gamma)),
            1e-7);
  EXPECT_LE(relative_error(g.dbeta, finite_difference(
                                        [&](const Values& v) { return loss(x, gamma, v); }, beta)),
            1e-7);
}

TEST_F(GroupNormTest, SameBitsInEveryContextAndOnAnyNumberOfThreads) {
  for (const Case& c : cases) {
    SCOPED_TRACE(to_string(c.shape));
    const std::int64_t channels = c.shape[-1];
    const Tensor x = tensor_of(normal_values(c.shape.elements(), 1), c.shape);
    const Tensor dy = tensor_of(normal_values(c.shape.elements(), 2), c.shape);
    const Tensor gamma = tensor_of(normal_values(channels, 3), {channels});
    const auto run = [&](OpContext& context) {
      const auto result = ops::group_norm(context, x, gamma, gamma, c.groups, epsilon);
      const Tensor dgamma = Tensor::empty({channels}, DType::f32, context.allocator(), "dgamma");
      const Tensor dbeta = Tensor::empty({channels}, DType::f32, context.allocator(), "dbeta");
      const Tensor dx =
          ops::group_norm_backward(context, x, dy, gamma, result, c.groups, epsilon, dgamma, dbeta);
      Bytes bytes;
      for (const Tensor& t : {result.y, dx, dgamma, dbeta}) append_bytes(bytes, t);
      return bytes;
    };
    expect_same_bits_everywhere(run);
    OpContext two(allocator_, 2);
    two.bind_to_this_thread();
    const Bytes on_two = run(two);
    context_.bind_to_this_thread();
    EXPECT_TRUE(run(context_) == on_two);
  }
}

TEST_F(GroupNormTest, EmptyBatch) {
  const Tensor x = Tensor::empty({0, 4, 4, 16}, DType::f32, allocator_, "test");
  const Tensor gamma = tensor_of(normal_values(16, 1), {16});
  const auto result = ops::group_norm(context_, x, gamma, gamma, 4, epsilon);
  EXPECT_EQ(result.y.shape(), x.shape());
  const Tensor dgamma = unwritten({16}), dbeta = unwritten({16});
  ops::group_norm_backward(context_, x, x, gamma, result, 4, epsilon, dgamma, dbeta);
  EXPECT_EQ(values_of(dgamma), std::vector<double>(16));
  EXPECT_EQ(values_of(dbeta), std::vector<double>(16));
}

}  // namespace
}  // namespace dtrain
