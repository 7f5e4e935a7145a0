// Which parameters travel together.
#include "dtrain/parallel/reduce/bucket_plan.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

namespace dtrain {
namespace {

constexpr std::int64_t mib = 1 << 20;
constexpr std::int64_t mib_floats = mib / 4;

// Sizes in order of the arena; `norm` lies behind them.
Model model_of(std::vector<std::int64_t> sizes) {
  std::ranges::reverse(sizes);
  return Model(sizes);
}

void expect_covers(const BucketPlan& plan, const ArenaLayout& layout) {
  std::int64_t end = 0;
  int parameter = 0;
  for (const Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.first, end);
    EXPECT_GT(bucket.last, bucket.first);
    end = bucket.last;
    ASSERT_FALSE(bucket.parameters.empty());
    EXPECT_EQ(bucket.first, layout.parameters()[bucket.parameters.front()]->offset);
    for (const int p : bucket.parameters) EXPECT_EQ(p, parameter++);
  }
  EXPECT_EQ(parameter, static_cast<int>(layout.parameters().size()));
  EXPECT_EQ(end, layout.gradient_elements());
}

TEST(BucketPlan, TheFirstBucketIsSmall) {
  const Model model(std::vector<std::int64_t>(20, mib_floats / 2));
  const BucketPlan plan = make_bucket_plan(model.layout, 4 * mib);
  expect_covers(plan, model.layout);
  ASSERT_EQ(plan.buckets.size(), 4U);
  const auto bytes = [&](int b) { return 4 * (plan.buckets[b].last - plan.buckets[b].first); };
  EXPECT_EQ(bytes(0), mib);
  EXPECT_EQ(bytes(1), 4 * mib);
  EXPECT_EQ(bytes(2), 4 * mib);
  // One MiB is left, then weight, bias and statistic sums of the norm.
  EXPECT_EQ(bytes(3), mib + 4 * (16 + 16 + 16));
}

TEST(BucketPlan, SmallBucketsMakeTheFirstOneSmallToo) {
  const Model model(std::vector<std::int64_t>(4, 256));
  const BucketPlan plan = make_bucket_plan(model.layout, 1024);
  expect_covers(plan, model.layout);
  EXPECT_EQ(plan.buckets.size(), 5U);
  for (int b = 0; b < 4; ++b) EXPECT_EQ(plan.buckets[b].parameters.size(), 1U);
}

TEST(BucketPlan, ALargeParameterIsNotCut) {
  const Model model = model_of({100, 30 * mib_floats, 100});
  const BucketPlan plan = make_bucket_plan(model.layout, mib);
  expect_covers(plan, model.layout);
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_EQ(plan.buckets[0].parameters, (std::vector<int>{0, 1}));
}

TEST(BucketPlan, StatisticSumsRideInTheLastBucket) {
  const Model model(std::vector<std::int64_t>(3, 16));
  const BucketPlan plan = make_bucket_plan(model.layout, 1);
  expect_covers(plan, model.layout);
  EXPECT_EQ(plan.buckets.size(), 5U);  // three, and the norm's weight and bias
  EXPECT_EQ(plan.buckets.back().first, model.layout.parameters().back()->offset);
  EXPECT_GT(plan.buckets.back().last, model.layout.weight_elements());
}

TEST(BucketPlan, IsAFunctionOfItsArguments) {
  const std::vector<std::int64_t> sizes = {5000, 300, 40000, 7, 9000};
  const Model one(sizes), two(sizes), other({5000, 300, 40000, 7, 9100});
  const std::string digest = make_bucket_plan(one.layout, 8192).digest();
  EXPECT_EQ(make_bucket_plan(two.layout, 8192).digest(), digest);
  EXPECT_NE(make_bucket_plan(two.layout, 65536).digest(), digest);
  EXPECT_NE(make_bucket_plan(other.layout, 8192).digest(), digest);
}

TEST(BucketPlan, CoversTheArenaForAnySizes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::int64_t> sizes(1 + random() % 30);
    for (std::int64_t& size : sizes) size = 1 + random() % 100000;
    const Model model(sizes);
    expect_covers(make_bucket_plan(model.layout, 1 + random() % 1000000), model.layout);
  }
}

TEST(BucketPlan, PrintsALinePerBucket) {
  const Model model = model_of({mib_floats, 16});
  EXPECT_EQ(to_string(make_bucket_plan(model.layout, mib), model.layout),
            "bucket 0: 1.00 MiB, p1 .. p1 (1 parameters)\n"
            "bucket 1: 0.00 MiB, p0 .. norm.weight (3 parameters)\n");
}

}  // namespace
}  // namespace dtrain
