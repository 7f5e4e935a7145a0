#include "dtrain/core/ops/activation.h"

#include <limits>
#include <string>

#include "dtrain/tests/reference/activation.h"
#include "dtrain/tests/reference/finite_difference.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

// An elementwise activation with its backward, which reads x or y.
struct Activation {
  std::string name;
  Tensor (*forward)(OpContext&, const Tensor&);
  Tensor (*backward)(OpContext&, const Tensor&, const Tensor&);
  bool backward_reads_output;
  double (*value)(double);
  double (*slope)(double);
};

const std::vector<Activation> activations = {
    {"relu", ops::relu, ops::relu_backward, true, reference::relu, reference::relu_slope},
    {"gelu", ops::gelu, ops::gelu_backward, false, reference::gelu, reference::gelu_slope},
    {"sigmoid", ops::sigmoid, ops::sigmoid_backward, true, reference::sigmoid,
     reference::sigmoid_slope},
    {"tanh", ops::tanh, ops::tanh_backward, true, reference::tanh, reference::tanh_slope},
};

class ActivationTest : public OpsTest {
 protected:
  // The backward of `activation` at x.
  Tensor backward(const Activation& activation, const Tensor& x, const Tensor& dy) {
    if (!activation.backward_reads_output) return activation.backward(context_, x, dy);
    return activation.backward(context_, activation.forward(context_, x), dy);
  }
};

TEST_F(ActivationTest, ReferenceSlopesMatchFiniteDifferences) {
  for (const Activation& activation : activations) {
    SCOPED_TRACE(activation.name);
    for (double x = -6.05; x < 6.1; x += 0.1) {
      const auto f = [&](const std::vector<double>& at) { return activation.value(at[0]); };
      EXPECT_NEAR(activation.slope(x), reference::finite_difference(f, {x})[0], 1e-9) << x;
    }
  }
}

TEST_F(ActivationTest, MatchReference) {
  for_each_instruction_set([&] {
    for (const Activation& activation : activations) {
      for (const double range : {0.01, 1.0, 8.0, 100.0}) {
        SCOPED_TRACE(activation.name + " in " + std::to_string(range));
        const Tensor x = random({7, 333}, -range, range);
        const Tensor dy = random({7, 333}, -1, 1, 2);
        std::vector<double> y, dx;
        for (std::size_t i = 0; i < static_cast<std::size_t>(x.elements()); ++i) {
          const double v = x.values<float>()[i];
          y.push_back(activation.value(v));
          dx.push_back(activation.slope(v) * dy.values<float>()[i]);
        }
        EXPECT_LE(relative_error(doubles(activation.forward(context_, x)), y), 1e-6);
        EXPECT_LE(relative_error(doubles(backward(activation, x, dy)), dx), 1e-6);
      }
    }
  });
}

// A few units in the last place of each value, not only of the largest.
TEST_F(ActivationTest, SigmoidTanhAndErfAreAccurateForSmallValues) {
  for_each_instruction_set([&] {
    for (const Activation& activation : activations) {
      const Tensor x = random({4000}, -3, 3);
      const Tensor y = activation.forward(context_, x);
      for (std::size_t i = 0; i < 4000; ++i) {
        const double v = x.values<float>()[i];
        const double expected = activation.value(v);
        EXPECT_NEAR(y.values<float>()[i], expected, 6e-7 * std::abs(expected) + 2e-8 * std::abs(v))
            << activation.name << " of " << v;
      }
    }
  });
}

TEST_F(ActivationTest, BitsDoNotDependOnPlaceOrLength) {
  for_each_instruction_set([&] {
    for (const Activation& activation : activations) {
      SCOPED_TRACE(activation.name);
      const Tensor x = random({70}, -5, 5);
      const Tensor dy = random({70}, -5, 5, 2);
      const auto y = bits(activation.forward(context_, x));
      const auto dx = bits(backward(activation, x, dy));
      for (std::int64_t first = 0; first < 20; ++first) {
        for (const std::int64_t last : {first + 1, first + 3, first + 16, first + 33, first + 50}) {
          const auto part_y = bits(activation.forward(context_, x.rows(first, last)));
          const auto part_dx =
              bits(backward(activation, x.rows(first, last), dy.rows(first, last)));
          ASSERT_TRUE(std::equal(part_y.begin(), part_y.end(), y.begin() + first));
          ASSERT_TRUE(std::equal(part_dx.begin(), part_dx.end(), dx.begin() + first));
        }
      }
    }
  });
}

TEST_F(ActivationTest, NanStaysNanAndInfinitiesHaveTheirLimits) {
  const float inf = std::numeric_limits<float>::infinity();
  for_each_instruction_set([&] {
    const Tensor x = of({NAN, -inf, inf, -1e30F, 1e30F}, {5});
    for (const Activation& activation : activations) {
      const Tensor y = activation.forward(context_, x);
      EXPECT_TRUE(std::isnan(y.values<float>()[0])) << activation.name;
      EXPECT_EQ(y.values<float>()[3], static_cast<float>(activation.value(-1e30)));
      EXPECT_EQ(y.values<float>()[4], static_cast<float>(activation.value(1e30)));
    }
    const std::vector<float> sigmoid = {0, 1};
    const std::vector<float> tanh = {-1, 1};
    const std::vector<float> relu = {0, inf};
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(ops::sigmoid(context_, x).values<float>()[i + 1], sigmoid[i]);
      EXPECT_EQ(ops::tanh(context_, x).values<float>()[i + 1], tanh[i]);
      EXPECT_EQ(ops::relu(context_, x).values<float>()[i + 1], relu[i]);
    }
  });
}

TEST_F(ActivationTest, KeepLayoutAndTakeNoSamples) {
  const Tensor image = random({2, 3, 3, 16}, -1, 1, 1, Layout{8});
  for (const Activation& activation : activations) {
    EXPECT_EQ(activation.forward(context_, image).layout(), Layout{8});
    const Tensor none = random({0, 3}, 0, 1);
    EXPECT_EQ(activation.forward(context_, none).shape(), Shape({0, 3}));
    EXPECT_EQ(activation.backward(context_, none, none).shape(), Shape({0, 3}));
  }
}

TEST_F(ActivationTest, ThreadsDoNotChangeBits) {
  OpContext three(allocator_, 3);
  const Tensor x = random({100, 1001}, -5, 5);
  EXPECT_EQ(bits(ops::gelu(context_, x)), bits(ops::gelu(three, x)));
  EXPECT_EQ(bits(ops::softmax(context_, x)), bits(ops::softmax(three, x)));
}

class SoftmaxTest : public OpsTest {};

TEST_F(SoftmaxTest, ReferenceMatchesFiniteDifferences) {
  const std::vector<double> x = {0.3, -1.2, 2.0, 0.7, 0.0, -0.4};
  const std::vector<double> dy = {1.0, -0.5, 0.25, 2.0, -1.0, 0.75};
  const auto f = [&](const std::vector<double>& at) {
    const std::vector<double> y = reference::softmax(at, 3);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  EXPECT_LE(relative_error(reference::softmax_backward(reference::softmax(x, 3), dy, 3),
                           reference::finite_difference(f, x)),
            1e-9);
}

TEST_F(SoftmaxTest, MatchesReference) {
  for_each_instruction_set([&] {
    for (const std::int64_t columns : {1, 2, 3, 7, 8, 10, 16, 17, 100, 1000, 5003}) {
      for (const double range : {1.0, 30.0, 1e4}) {
        const Tensor x = random({5, columns}, -range, range);
        const Tensor dy = random({5, columns}, -1, 1, 2);
        const Tensor y = ops::softmax(context_, x);
        EXPECT_LE(relative_error(doubles(y), reference::softmax(doubles(x), columns)), 1e-6)
            << columns << " in " << range;
        const auto dx = reference::softmax_backward(doubles(y), doubles(dy), columns);
        EXPECT_LE(relative_error(doubles(ops::softmax_backward(context_, y, dy)), dx), 1e-6)
            << columns << " in " << range;
      }
    }
  });
}

TEST_F(SoftmaxTest, RowsAreIndependent) {
  for_each_instruction_set([&] {
    const Tensor x = random({9, 13}, -3, 3);
    const auto all = bits(ops::softmax(context_, x));
    for (std::int64_t row = 0; row < 9; ++row) {
      const auto one = bits(ops::softmax(context_, x.rows(row, row + 1)));
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + row * 13));
    }
  });
}

TEST_F(SoftmaxTest, MaskedClassesHaveNoProbabilityAndNanSpreadsOverItsRowOnly) {
  const float inf = std::numeric_limits<float>::infinity();
  for_each_instruction_set([&] {
    const Tensor y =
        ops::softmax(context_, of({-inf, 2, 2, NAN, 0, 0, inf, 0, 0, 1, 1, 1}, {4, 3}));
    const std::span<const float> values = y.values<float>();
    EXPECT_EQ(values[0], 0.0F);
    EXPECT_EQ(values[1], 0.5F);
    for (std::size_t i = 3; i < 9; ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
    EXPECT_EQ(values[9], static_cast<float>(1.0 / 3));
  });
}

TEST_F(SoftmaxTest, TakesNoRows) {
  const Tensor none = random({0, 4}, 0, 1);
  EXPECT_EQ(ops::softmax(context_, none).shape(), Shape({0, 4}));
  EXPECT_EQ(ops::softmax_backward(context_, none, none).shape(), Shape({0, 4}));
}

}  // namespace
}  // namespace dtrain
