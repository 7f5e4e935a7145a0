#include "dtrain/core/ops/dropout.h"

#include <numeric>

#include "dtrain/core/ops/elementwise.h"
#include "dtrain/tests/reference/dropout.h"
#include "dtrain/tests/reference/layout.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class DropoutTest : public OpsTest {
 protected:
  RandomKey key_ = RandomKey(7).fork(RandomPurpose::dropout, 3);
};

TEST_F(DropoutTest, KeepsWhatTheKeySays) {
  for_each_instruction_set([&] {
    // Lengths around vectors, blocks of four and the chunk in which words are made.
    for (const std::int64_t elements : {1, 2, 3, 4, 5, 31, 64, 67, 2047, 2048, 2049, 5000}) {
      const Tensor x = random({3, elements}, 1, 2);
      const std::vector<std::int64_t> positions = {0, 17, (std::int64_t{1} << 33) + 5};
      const float p = 0.3F;
      const Tensor y = ops::dropout(context_, x, p, key_, positions);
      for (std::int64_t n = 0; n < 3; ++n) {
        for (std::int64_t e = 0; e < elements; ++e) {
          const std::size_t i = static_cast<std::size_t>(n * elements + e);
          const bool keep = reference::dropout_keeps(key_, positions[n], e, p);
          ASSERT_EQ(y.values<float>()[i], keep ? x.values<float>()[i] / (1.0F - p) : 0.0F)
              << "row " << n << " element " << e << " of " << elements;
        }
      }
    }
  });
}

TEST_F(DropoutTest, MaskBelongsToTheElementInEveryLayout) {
  for_each_instruction_set([&] {
    struct Case {
      Shape shape;
      int block;
    };
    for (const Case& c : {Case{{2, 3, 5, 16}, 8}, Case{{2, 3, 5, 32}, 16}, Case{{2, 7, 7, 96}, 16},
                          Case{{2, 3, 5, 6}, 3}, Case{{2, 5, 5, 24}, 12}, Case{{2, 2, 2, 8}, 1}}) {
      SCOPED_TRACE(to_string(c.shape) + " in blocks of " + std::to_string(c.block));
      const Tensor plain = random(c.shape, 1, 2);
      const Tensor blocked = ops::to_layout(context_, plain, Layout{c.block});
      const std::vector<std::int64_t> positions = {4, 9};
      const Tensor y_plain = ops::dropout(context_, plain, 0.5F, key_, positions);
      const Tensor y_blocked = ops::dropout(context_, blocked, 0.5F, key_, positions);
      EXPECT_EQ(y_blocked.layout(), Layout{c.block});
      EXPECT_EQ(bits(ops::to_layout(context_, y_blocked, Layout{})), bits(y_plain));
    }
  });
}

TEST_F(DropoutTest, RowsDependOnTheirPositionAlone) {
  const Tensor x = random({4, 1000}, 1, 2);
  const std::vector<std::int64_t> positions = {5, 6, 7, 8};
  const auto all = bits(ops::dropout(context_, x, 0.4F, key_, positions));
  const auto last =
      bits(ops::dropout(context_, x.rows(3, 4), 0.4F, key_, std::span(positions).subspan(3)));
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.begin() + 3000));
}

TEST_F(DropoutTest, OtherKeysPositionsAndCallsDropOtherElements) {
  const Tensor x = random({1, 1000}, 1, 2);
  const std::vector<std::int64_t> here = {5}, there = {6};
  const auto y = bits(ops::dropout(context_, x, 0.5F, key_.fork(1, 0), here));
  EXPECT_EQ(y, bits(ops::dropout(context_, x, 0.5F, key_.fork(1, 0), here)));
  EXPECT_NE(y, bits(ops::dropout(context_, x, 0.5F, key_.fork(1, 0), there)));
  EXPECT_NE(y, bits(ops::dropout(context_, x, 0.5F, key_.fork(2, 0), here)));
  EXPECT_NE(y, bits(ops::dropout(context_, x, 0.5F, key_.fork(1, 1), here)));
}

TEST_F(DropoutTest, DropsTheShareAndKeepsTheMean) {
  const Tensor x = of(std::vector<float>(1 << 18, 1.0F), {64, 4096});
  std::vector<std::int64_t> positions(64);
  std::iota(positions.begin(), positions.end(), 0);
  for (const float p : {0.1F, 0.5F, 0.9F}) {
    const std::vector<double> y = doubles(ops::dropout(context_, x, p, key_, positions));
    const double share = static_cast<double>(std::count(y.begin(), y.end(), 0.0)) / (1 << 18);
    // Five standard deviations.
    EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / (1 << 18)));
    EXPECT_NEAR(std::accumulate(y.begin(), y.end(), 0.0) / (1 << 18), (1 - share) / (1 - p), 1e-6);
  }
}

TEST_F(DropoutTest, ZeroKeepsAllOneDropsAll) {
  const Tensor x = of({1, -2, NAN, 4, 5}, {1, 5});
  const std::vector<std::int64_t> positions = {0};
  EXPECT_EQ(bits(ops::dropout(context_, x, 0.0F, key_, positions)), bits(x));
  EXPECT_EQ(doubles(ops::dropout(context_, x, 1.0F, key_, positions)), std::vector<double>(5, 0.0));
}

TEST_F(DropoutTest, TakesNoSamplesAndChecksItsArguments) {
  EXPECT_EQ(ops::dropout(context_, random({0, 4}, 0, 1), 0.5F, key_, {}).shape(), Shape({0, 4}));
  const std::vector<std::int64_t> two = {0, 1};
  EXPECT_THROW(ops::dropout(context_, random({3, 4}, 0, 1), 0.5F, key_, two), InternalError);
  EXPECT_THROW(ops::dropout(context_, random({2, 4}, 0, 1), 1.5F, key_, two), InternalError);
  EXPECT_THROW(ops::dropout(context_, random({2, 4}, 0, 1), NAN, key_, two), InternalError);
}

TEST_F(DropoutTest, ThreadsDoNotChangeBits) {
  OpContext three(allocator_, 3);
  const Tensor x = random({50, 3000}, 1, 2);
  std::vector<std::int64_t> positions(50);
  std::iota(positions.begin(), positions.end(), 100);
  EXPECT_EQ(bits(ops::dropout(context_, x, 0.2F, key_, positions)),
            bits(ops::dropout(three, x, 0.2F, key_, positions)));
}

}  // namespace
}  // namespace dtrain
