#include "dtrain/core/ops/reduce.h"

#include "dtrain/core/base/error.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

TEST(BlockSumTest, MatchesPlainSumOfSquares) {
  for_each_instruction_set([] {
    RandomSequence numbers{RandomKey(3)};
    for (const std::size_t n : {0UL, 1UL, 7UL, 8UL, 31UL, 32UL, 33UL, 100UL, 4095UL, 4096UL}) {
      std::vector<float> block(n);
      long double expected = 0;
      for (float& value : block) {
        value = static_cast<float>(numbers.uniform(-1e3, 1e3));
        expected += static_cast<long double>(value) * value;
      }
      EXPECT_NEAR(ops::block_sum_of_squares(block), static_cast<double>(expected),
                  1e-14 * static_cast<double>(expected));
    }
  });
}

TEST(BlockSumTest, LargeAndTinyValuesNeitherOverflowNorVanish) {
  for_each_instruction_set([] {
    EXPECT_EQ(ops::block_sum_of_squares(std::vector<float>(16, 0x1p120F)), 16 * 0x1p240);
    EXPECT_EQ(ops::block_sum_of_squares(std::vector<float>(16, 0x1p-149F)), 16 * 0x1p-298);
    EXPECT_TRUE(std::isnan(ops::block_sum_of_squares(std::vector<float>{1, NAN, 2})));
  });
}

TEST(BlockSumTest, RejectsMoreThanOneBlock) {
  EXPECT_THROW(ops::block_sum_of_squares(std::vector<float>(4097)), InternalError);
}

}  // namespace
}  // namespace dtrain
