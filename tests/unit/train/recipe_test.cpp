#include "dtrain/parallel/train/recipe.h"

#include <cmath>

#include "support.h"

#include "dtrain/parallel/train/replica.h"

namespace dtrain::test {
namespace {

// Note [Counts, not means]: the largest power of two whose product with the count is at most one.
TEST(GradientSeed, IsAPowerOfTwoNearOneOverTheCount) {
  EXPECT_EQ(gradient_seed(1), 1);
  EXPECT_EQ(gradient_seed(2), 0.5);
  EXPECT_EQ(gradient_seed(3), 0.25);
  EXPECT_EQ(gradient_seed(0.5), 1);
  for (int k = 0; k < 40; ++k) {
    const double n = std::ldexp(1.0, k);
    EXPECT_EQ(gradient_seed(n), 1 / n);
    if (k > 0) {
      EXPECT_EQ(gradient_seed(n + 1), 0.5 / n);
    }
    if (k > 1) {
      EXPECT_EQ(gradient_seed(n - 1), 1 / n);
    }
  }
}

TEST(ReductionNamed, KnowsTwo) {
  EXPECT_EQ(reduction_named("reproducible"), Reduction::reproducible);
  EXPECT_EQ(reduction_named("fast"), Reduction::fast);
  EXPECT_EQ(error_of<ConfigError>([] { reduction_named("slow"); }),
            "parallel.reduction: 'slow' is not one of reproducible, fast");
}

TEST(LossOptions, ComeFromTheRecipe) {
  config::Loss loss;
  loss.set_name("cross_entropy");
  loss.set_label_smoothing(0.25);
  loss.set_ignore_index(7);
  loss.add_class_weights(0.5);
  loss.add_class_weights(2);
  const LossOptions options = loss_options(loss);
  EXPECT_EQ(options.name, "cross_entropy");
  EXPECT_EQ(options.label_smoothing, 0.25F);
  EXPECT_EQ(options.ignore_index, 7);
  EXPECT_EQ(options.class_weights, (std::vector<float>{0.5F, 2}));
}

}  // namespace
}  // namespace dtrain::test
