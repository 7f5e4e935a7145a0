#include "dtrain/core/ops/loss.h"

#include <limits>

#include "dtrain/tests/reference/finite_difference.h"
#include "dtrain/tests/reference/loss.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class CrossEntropyTest : public OpsTest {
 protected:
  // Targets of n rows; each fifth is ignored.
  std::vector<std::int64_t> targets(std::int64_t n, std::int64_t classes, std::int64_t ignore) {
    RandomSequence numbers{RandomKey(5)};
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < n; ++i) {
      result.push_back(i % 5 == 4 ? ignore
                                  : static_cast<std::int64_t>(
                                        numbers.below(static_cast<std::uint64_t>(classes))));
    }
    return result;
  }

  // The same options for the operator and the reference.
  struct Case {
    ops::CrossEntropyOptions options;
    reference::CrossEntropy reference;
  };
  std::vector<Case> cases(std::int64_t classes) {
    std::vector<Case> result;
    for (const float smoothing : {0.0F, 0.1F, 1.0F}) {
      for (const bool weighted : {false, true}) {
        Case c;
        c.options.label_smoothing = smoothing;
        c.reference.classes = static_cast<std::size_t>(classes);
        c.reference.label_smoothing = smoothing;
        if (weighted) {
          c.options.class_weights = random({classes}, 0, 3, 9);
          c.reference.class_weights = doubles(c.options.class_weights);
        }
        result.push_back(c);
      }
    }
    return result;
  }
};

TEST_F(CrossEntropyTest, ReferenceMatchesFiniteDifferences) {
  for (const Case& c : cases(4)) {
    const std::vector<double> x = doubles(random({5, 4}, -2, 2));
    const std::vector<std::int64_t> t = {3, 0, 1, 2, -100};
    const auto f = [&](const std::vector<double>& at) { return c.reference.sum(at, t); };
    EXPECT_LE(relative_error(c.reference.gradient(x, t), reference::finite_difference(f, x)), 1e-8);
  }
}

TEST_F(CrossEntropyTest, MatchesReference) {
  for_each_instruction_set([&] {
    for (const std::int64_t classes : {1, 2, 3, 7, 8, 10, 17, 1000}) {
      for (const Case& c : cases(classes)) {
        for (const double range : {1.0, 20.0}) {
          SCOPED_TRACE(std::to_string(classes) + " classes in " + std::to_string(range));
          const Tensor x = random({11, classes}, -range, range);
          const std::vector<std::int64_t> t = targets(11, classes, -100);
          const ops::LossSums sums = ops::cross_entropy(context_, x, labels(t), c.options);
          const double expected = c.reference.sum(doubles(x), t);
          EXPECT_NEAR(sums.loss, expected, 1e-12 * std::abs(expected));
          EXPECT_NEAR(sums.weight, c.reference.divisor(t), 1e-12);
          std::vector<double> dx = c.reference.gradient(doubles(x), t);
          for (double& value : dx) value *= 0.25;
          const Tensor actual =
              ops::cross_entropy_backward(context_, x, labels(t), c.options, 0.25F);
          EXPECT_LE(relative_error(doubles(actual), dx), 1e-6);
        }
      }
    }
  });
}

TEST_F(CrossEntropyTest, UniformLogitsCostTheLogarithmOfTheClasses) {
  const Tensor x = of(std::vector<float>(20, 3.0F), {2, 10});
  EXPECT_NEAR(ops::cross_entropy(context_, x, labels({0, 9}), {}).loss, 2 * std::log(10.0), 1e-14);
}

TEST_F(CrossEntropyTest, IgnoredRowsCountNothingAndHaveNoGradient) {
  ops::CrossEntropyOptions options;
  options.ignore_index = 2;  // a class number may be the ignored one
  const Tensor x = of({1, 2, 3, NAN, NAN, NAN}, {2, 3});
  const ops::LossSums sums = ops::cross_entropy(context_, x, labels({0, 2}), options);
  EXPECT_EQ(sums.weight, 1);
  EXPECT_NEAR(sums.loss, std::log(1 + std::exp(1.0) + std::exp(2.0)), 1e-14);
  const std::vector<double> dx =
      doubles(ops::cross_entropy_backward(context_, x, labels({0, 2}), options, 1));
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(dx[i], 0);
  const ops::LossSums none = ops::cross_entropy(context_, x, labels({2, 2}), options);
  EXPECT_EQ(none.loss, 0);
  EXPECT_EQ(none.weight, 0);
}

TEST_F(CrossEntropyTest, ExtremeLogitsNeitherOverflowNorVanish) {
  for_each_instruction_set([&] {
    const Tensor x = of({1e4F, -1e4F, 0, 3e38F, -3e38F, 0}, {2, 3});
    EXPECT_EQ(ops::cross_entropy(context_, x, labels({0, 0}), {}).loss, 0);
    EXPECT_EQ(ops::cross_entropy(context_, x.rows(0, 1), labels({1}), {}).loss, 2e4);
    const std::vector<double> dx =
        doubles(ops::cross_entropy_backward(context_, x, labels({1, 0}), {}, 1));
    EXPECT_EQ(dx, (std::vector<double>{1, -1, 0, 0, 0, 0}));
    // log(1 + e^-40) and its slope are far below a float's last place of 1, but kept.
    const Tensor sure = of({40, 0}, {1, 2});
    EXPECT_NEAR(ops::cross_entropy(context_, sure, labels({1}), {}).loss, 40, 1e-13);
    const Tensor slope = ops::cross_entropy_backward(context_, sure, labels({1}), {}, 1);
    EXPECT_NEAR(slope.values<float>()[0], 1, 1e-7);
    const Tensor other = ops::cross_entropy_backward(context_, sure, labels({0}), {}, 1);
    EXPECT_NEAR(other.values<float>()[1] / std::exp(-40.0), 1, 1e-6);
  });
}

TEST_F(CrossEntropyTest, InfiniteAndNanLogitsAreSeen) {
  const float inf = std::numeric_limits<float>::infinity();
  for_each_instruction_set([&] {
    // A class at -infinity is masked out: it costs nothing unless it is the target.
    const Tensor masked = of({-inf, 1, 1}, {1, 3});
    EXPECT_NEAR(ops::cross_entropy(context_, masked, labels({1}), {}).loss, std::log(2.0), 1e-15);
    EXPECT_EQ(ops::cross_entropy(context_, masked, labels({0}), {}).loss, inf);
    const std::vector<double> dx =
        doubles(ops::cross_entropy_backward(context_, masked, labels({1}), {}, 1));
    EXPECT_EQ(dx, (std::vector<double>{0, -0.5, 0.5}));
    for (const float bad : {inf, NAN, -NAN}) {
      for (std::int64_t at = 0; at < 20; ++at) {
        std::vector<float> values(20, 1.0F);
        values[static_cast<std::size_t>(at)] = bad;
        const Tensor x = of(values, {1, 20});
        EXPECT_TRUE(std::isnan(ops::cross_entropy(context_, x, labels({3}), {}).loss)) << at;
        const Tensor gradient = ops::cross_entropy_backward(context_, x, labels({3}), {}, 1);
        for (const float value : gradient.values<float>()) EXPECT_TRUE(std::isnan(value));
      }
    }
    const Tensor nothing = of({-inf, -inf}, {1, 2});
    EXPECT_TRUE(std::isnan(ops::cross_entropy(context_, nothing, labels({1}), {}).loss));
  });
}

TEST_F(CrossEntropyTest, RowsAreIndependentAndThreadsChangeNothing) {
  OpContext three(allocator_, 3);
  for_each_instruction_set([&] {
    const Tensor x = random({500, 37}, -5, 5);
    const std::vector<std::int64_t> t = targets(500, 37, -100);
    const auto all = bits(ops::cross_entropy_backward(context_, x, labels(t), {}, 1));
    EXPECT_EQ(all, bits(ops::cross_entropy_backward(three, x, labels(t), {}, 1)));
    EXPECT_EQ(ops::cross_entropy(context_, x, labels(t), {}).loss,
              ops::cross_entropy(three, x, labels(t), {}).loss);
    const auto row =
        bits(ops::cross_entropy_backward(context_, x.rows(7, 8), labels({t[7]}), {}, 1));
    EXPECT_TRUE(std::equal(row.begin(), row.end(), all.begin() + 7 * 37));
  });
}

TEST_F(CrossEntropyTest, ChecksItsTargets) {
  const Tensor x = random({2, 3}, 0, 1);
  EXPECT_THROW(ops::cross_entropy(context_, x, labels({0, 3}), {}), InternalError);
  EXPECT_THROW(ops::cross_entropy(context_, x, labels({-1, 0}), {}), InternalError);
  EXPECT_THROW(ops::cross_entropy_backward(context_, x, labels({0, 3}), {}, 1), InternalError);
  EXPECT_THROW(ops::cross_entropy(context_, x, labels({0}), {}), InternalError);
  ops::CrossEntropyOptions options;
  options.class_weights = random({4}, 0, 1);
  EXPECT_THROW(ops::cross_entropy(context_, x, labels({0, 1}), options), InternalError);
}

TEST_F(CrossEntropyTest, TakesNoRows) {
  const Tensor x = random({0, 3}, 0, 1);
  const ops::LossSums sums = ops::cross_entropy(context_, x, labels({}), {});
  EXPECT_EQ(sums.loss, 0);
  EXPECT_EQ(sums.weight, 0);
  EXPECT_EQ(ops::cross_entropy_backward(context_, x, labels({}), {}, 1).shape(), Shape({0, 3}));
}

class ElementLossTest : public OpsTest {};

TEST_F(ElementLossTest, MeanSquaredErrorMatchesReference) {
  for_each_instruction_set([&] {
    for (const std::int64_t n : {1, 7, 100, 5000, 9000}) {
      const Tensor x = random({n, 1}, -3, 3, 1);
      const Tensor t = random({n, 1}, -3, 3, 2);
      const ops::LossSums sums = ops::mse(context_, x, t);
      const double expected = reference::squared_error_sum(doubles(x), doubles(t));
      EXPECT_NEAR(sums.loss, expected, 1e-12 * expected);
      EXPECT_EQ(sums.weight, static_cast<double>(n));
      std::vector<double> dx;
      const std::vector<double> from = doubles(x), to = doubles(t);
      for (std::size_t i = 0; i < from.size(); ++i) dx.push_back(2 * 0.125 * (from[i] - to[i]));
      EXPECT_LE(relative_error(doubles(ops::mse_backward(context_, x, t, 0.125F)), dx), 1e-6);
    }
  });
}

TEST_F(ElementLossTest, BinaryCrossEntropyReferenceMatchesFiniteDifferences) {
  const std::vector<double> t = {0, 1, 0.3};
  const std::vector<double> x = {0.7, -1.5, 2.0};
  const auto f = [&](const std::vector<double>& at) {
    return reference::binary_cross_entropy_sum(at, t);
  };
  const std::vector<double> slope = reference::finite_difference(f, x);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(reference::binary_cross_entropy_slope(x[i], t[i]), slope[i], 1e-9);
  }
}

TEST_F(ElementLossTest, BinaryCrossEntropyMatchesReference) {
  for_each_instruction_set([&] {
    for (const double range : {1.0, 30.0, 1e4}) {
      const Tensor x = random({61, 83}, -range, range, 1);
      const Tensor t = random({61, 83}, 0, 1, 2);
      const ops::LossSums sums = ops::bce_with_logits(context_, x, t);
      const double expected = reference::binary_cross_entropy_sum(doubles(x), doubles(t));
      EXPECT_NEAR(sums.loss, expected, 1e-12 * expected);
      EXPECT_EQ(sums.weight, 61 * 83);
      std::vector<double> dx;
      const std::vector<double> from = doubles(x), to = doubles(t);
      for (std::size_t i = 0; i < from.size(); ++i) {
        dx.push_back(3 * reference::binary_cross_entropy_slope(from[i], to[i]));
      }
      EXPECT_LE(relative_error(doubles(ops::bce_with_logits_backward(context_, x, t, 3)), dx),
                1e-6);
    }
  });
}

TEST_F(ElementLossTest, NanIsSeenAndNoRowsAreNoLoss) {
  for_each_instruction_set([&] {
    for (const float target : {0.0F, 1.0F}) {
      const Tensor x = of({1, NAN, 1}, {3});
      const Tensor t = of({target, target, target}, {3});
      EXPECT_TRUE(std::isnan(ops::mse(context_, x, t).loss));
      EXPECT_TRUE(std::isnan(ops::bce_with_logits(context_, x, t).loss));
      EXPECT_TRUE(std::isnan(ops::mse_backward(context_, x, t, 1).values<float>()[1]));
      EXPECT_TRUE(std::isnan(ops::bce_with_logits_backward(context_, x, t, 1).values<float>()[1]));
    }
  });
  const Tensor none = random({0, 1}, 0, 1);
  EXPECT_EQ(ops::mse(context_, none, none).loss, 0);
  EXPECT_EQ(ops::bce_with_logits(context_, none, none).weight, 0);
  EXPECT_EQ(ops::mse_backward(context_, none, none, 1).elements(), 0);
  EXPECT_EQ(ops::bce_with_logits_backward(context_, none, none, 1).elements(), 0);
}

class TopKTest : public OpsTest {};

TEST_F(TopKTest, CountsTargetsAmongTheBest) {
  for_each_instruction_set([&] {
    std::vector<float> scores(40);
    for (std::size_t c = 0; c < 40; ++c) scores[c] = static_cast<float>((c * 17) % 40);
    // Class c's rank is 39 - (17 c mod 40).
    const Tensor x = of(scores, {1, 40});
    for (std::int64_t c = 0; c < 40; ++c) {
      const ops::TopK counts = ops::count_top_k(context_, x, labels({c}), -100);
      const std::int64_t rank = 39 - (c * 17) % 40;
      EXPECT_EQ(counts.targets, 1);
      EXPECT_EQ(counts.top1, rank < 1 ? 1 : 0) << c;
      EXPECT_EQ(counts.top5, rank < 5 ? 1 : 0) << c;
    }
  });
}

TEST_F(TopKTest, TiesGoToTheLowerClass) {
  for_each_instruction_set([&] {
    const Tensor x = of(std::vector<float>(21, 1.0F), {1, 21});
    for (std::int64_t c = 0; c < 21; ++c) {
      const ops::TopK counts = ops::count_top_k(context_, x, labels({c}), -100);
      EXPECT_EQ(counts.top1, c == 0 ? 1 : 0) << c;
      EXPECT_EQ(counts.top5, c < 5 ? 1 : 0) << c;
    }
  });
}

TEST_F(TopKTest, FewClassesAreAllInTheTopFive) {
  const Tensor x = of({3, 2, 1, 1, 2, 3}, {2, 3});
  const ops::TopK counts = ops::count_top_k(context_, x, labels({2, 2}), -100);
  EXPECT_EQ(counts.top1, 1);
  EXPECT_EQ(counts.top5, 2);
}

TEST_F(TopKTest, IgnoredRowsAndNanAreNotRight) {
  const Tensor x = of({1, 2, NAN, 0, NAN, 0, 5, 4}, {4, 2});
  // Row 0 is right, row 1's target is NaN, row 2's other class is NaN, row 3 is ignored.
  const ops::TopK counts = ops::count_top_k(context_, x, labels({1, 0, 1, -100}), -100);
  EXPECT_EQ(counts.targets, 3);
  EXPECT_EQ(counts.top1, 1);
  EXPECT_EQ(counts.top5, 2);
  EXPECT_EQ(ops::count_top_k(context_, random({0, 4}, 0, 1), labels({}), -100).targets, 0);
}

}  // namespace
}  // namespace dtrain
