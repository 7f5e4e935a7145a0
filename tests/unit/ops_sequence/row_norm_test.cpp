#include "dtrain/tests/reference/row_norm.h"

#include "dtrain/core/ops/layer_norm.h"
#include "dtrain/tests/reference/finite_difference.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class RowNormTest : public OpsTest {
 protected:
  struct Result {
    Tensor y, dx, dgamma, dbeta;
  };
  // Forward and backward; gradients are added to ones.
  Result run(OpContext& context, bool centered, const Tensor& x, const Tensor& gamma,
             const Tensor& beta, const Tensor& dy, const Tensor& base = {}) {
    const ops::RowNormOutput out = centered ? ops::layer_norm(context, x, gamma, beta, 1e-5F)
                                            : ops::rms_norm(context, x, gamma, 1e-5F);
    Result result{.y = out.y, .dx = {}, .dgamma = ones(gamma.shape()), .dbeta = {}};
    if (centered) result.dbeta = ones(gamma.shape());
    const ops::RowNormGradients gradients{
        .gamma = result.dgamma, .beta = result.dbeta, .add_gamma = true, .add_beta = true};
    result.dx = (centered ? ops::layer_norm_backward : ops::rms_norm_backward)(
        context, x, dy, gamma, out.statistics, gradients, base);
    if (centered) {
      EXPECT_EQ(bits(ops::layer_norm_again(context, x, gamma, beta, out.statistics)), bits(out.y));
    }
    return result;
  }
  Tensor ones(const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test");
    std::ranges::fill(x.values<float>(), 1.0F);
    return x;
  }
};

TEST_F(RowNormTest, ReferencesMatchFiniteDifferences) {
  for (const bool centered : {true, false}) {
    const reference::RowNorm norm{.columns = 5, .centered = centered, .epsilon = 1e-5};
    const std::vector<double> x = doubles(random({3, 5}, -2, 2));
    const std::vector<double> gamma = doubles(random({5}, -2, 2, 2));
    const std::vector<double> beta = doubles(random({5}, -2, 2, 3));
    const std::vector<double> dy = doubles(random({3, 5}, -1, 1, 4));
    const auto objective = [&](const std::vector<double>& y) {
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const auto of_x = [&](const auto& at) { return objective(norm.forward(at, gamma, beta)); };
    const auto of_gamma = [&](const auto& at) { return objective(norm.forward(x, at, beta)); };
    const auto of_beta = [&](const auto& at) { return objective(norm.forward(x, gamma, at)); };
    const auto d = norm.backward(x, gamma, dy);
    EXPECT_LE(relative_error(d.x, reference::finite_difference(of_x, x)), 1e-8);
    EXPECT_LE(relative_error(d.gamma, reference::finite_difference(of_gamma, gamma)), 1e-8);
    EXPECT_LE(relative_error(d.beta, reference::finite_difference(of_beta, beta)), 1e-8);
  }
}

TEST_F(RowNormTest, MatchReference) {
  for_each_instruction_set([&] {
    for (const bool centered : {true, false}) {
      for (const std::int64_t columns : {1, 3, 16, 65, 384, 1023}) {
        SCOPED_TRACE(columns);
        const reference::RowNorm norm{
            .columns = static_cast<std::size_t>(columns), .centered = centered, .epsilon = 1e-5};
        const Tensor x = random({2, 67, columns}, -3, 5);
        const Tensor gamma = random({columns}, -2, 2, 2), beta = random({columns}, -2, 2, 3);
        const Tensor dy = random({2, 67, columns}, -1, 1, 4);
        const Result result = run(context_, centered, x, gamma, beta, dy);
        const std::vector<double> no_beta;
        EXPECT_LE(
            relative_error(doubles(result.y), norm.forward(doubles(x), doubles(gamma),
                                                           centered ? doubles(beta) : no_beta)),
            1e-6);
        auto d = norm.backward(doubles(x), doubles(gamma), doubles(dy));
        for (double& value : d.gamma) value += 1;
        for (double& value : d.beta) value += 1;
        // One column has no deviation: dx is what rounding leaves.
        if (columns > 1) {
          EXPECT_LE(relative_error(doubles(result.dx), d.x), 3e-6);
        }
        EXPECT_LE(relative_error(doubles(result.dgamma), d.gamma), 3e-6);
        if (centered) {
          EXPECT_LE(relative_error(doubles(result.dbeta), d.beta), 3e-6);
        }
      }
    }
  });
}

TEST_F(RowNormTest, OfALargeMeanAndASmallVariance) {
  const Tensor x = random({4, 257}, 9999.9, 10000.1);
  const Tensor gamma = ones({257}), beta = random({257}, 0, 0);
  const reference::RowNorm norm{.columns = 257, .epsilon = 1e-5};
  const Tensor y = ops::layer_norm(context_, x, gamma, beta, 1e-5F).y;
  // A float near 10,000 is exact to 5e-4, one part in a hundred of the deviation here.
  EXPECT_LE(relative_error(doubles(y), norm.forward(doubles(x), doubles(gamma), doubles(beta))),
            6e-3);
}

TEST_F(RowNormTest, BackwardAddsToAGivenGradient) {
  const Tensor x = random({9, 33}, -2, 2), dy = random({9, 33}, -1, 1, 4);
  const Tensor gamma = random({33}, -2, 2, 2), beta = random({33}, -2, 2, 3);
  const Tensor plain = run(context_, true, x, gamma, beta, dy).dx;
  const Tensor base = random({9, 33}, -1, 1, 5);
  std::vector<double> expected = doubles(base);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += doubles(plain)[i];
  const Tensor sum = run(context_, true, x, gamma, beta, dy, base).dx;
  EXPECT_EQ(sum.raw(), base.raw());
  EXPECT_LE(relative_error(doubles(sum), expected), 1e-7);
}

TEST_F(RowNormTest, BitsDoNotDependOnThreads) {
  OpContext three(allocator_, 3);
  const Tensor x = random({300, 131}, -2, 2), dy = random({300, 131}, -1, 1, 4);
  const Tensor gamma = random({131}, -2, 2, 2), beta = random({131}, -2, 2, 3);
  for (const bool centered : {true, false}) {
    const Result one = run(context_, centered, x, gamma, beta, dy);
    const Result other = run(three, centered, x, gamma, beta, dy);
    EXPECT_EQ(bits(one.y), bits(other.y));
    EXPECT_EQ(bits(one.dx), bits(other.dx));
    EXPECT_EQ(bits(one.dgamma), bits(other.dgamma));
    if (centered) {
      EXPECT_EQ(bits(one.dbeta), bits(other.dbeta));
    }
  }
}

TEST_F(RowNormTest, NaNStaysInItsRow) {
  const Tensor x = random({3, 40}, -2, 2);
  x.data<float>()[50] = NAN;
  const Tensor gamma = ones({40});
  const Tensor y = ops::layer_norm(context_, x, gamma, {}, 1e-5F).y;
  for (std::size_t i = 0; i < 120; ++i) {
    EXPECT_EQ(std::isnan(y.values<float>()[i]), i / 40 == 1) << i;
  }
}

TEST_F(RowNormTest, RefusesWeightsOfAnotherSize) {
  EXPECT_THROW(ops::layer_norm(context_, random({2, 5}, 0, 1), ones({4}), {}, 0), InternalError);
  EXPECT_THROW(ops::layer_norm(context_, random({2, 5}, 0, 1), ones({5}), ones({4}), 0),
               InternalError);
}

}  // namespace
}  // namespace dtrain
