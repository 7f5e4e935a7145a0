#include "dtrain/core/ops/embedding.h"

#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class EmbeddingTest : public OpsTest {
 protected:
  Tensor tokens(const std::vector<std::int32_t>& values, const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::i32, allocator_, "test");
    std::ranges::copy(values, x.values<std::int32_t>().begin());
    return x;
  }
  // 3 sequences of 5 tokens out of 7, some of them often.
  Tensor some_tokens() { return tokens({6, 0, 0, 3, 6, 1, 6, 6, 6, 0, 2, 2, 3, 4, 0}, {3, 5}); }
};

TEST_F(EmbeddingTest, TakesRowsAndAddsPositions) {
  for (const std::int64_t columns : {1, 19, 64}) {
    const Tensor table = random({7, columns}, -1, 1), positions = random({6, columns}, -1, 1, 2);
    const Tensor ids = some_tokens();
    const Tensor y = ops::embedding(context_, ids, table);
    const Tensor z = ops::embedding(context_, ids, table, positions);
    ASSERT_EQ(y.shape(), (Shape{3, 5, columns}));
    for (std::int64_t i = 0; i < 15; ++i) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const float row = table.data<float>()[ids.data<std::int32_t>()[i] * columns + c];
        EXPECT_EQ(y.data<float>()[i * columns + c], row);
        EXPECT_EQ(z.data<float>()[i * columns + c],
                  row + positions.data<float>()[i % 5 * columns + c]);
      }
    }
  }
}

TEST_F(EmbeddingTest, BackwardSumsInTheOrderOfTokensOnAnyThreads) {
  const Tensor ids = some_tokens();
  OpContext three(allocator_, 3);
  for (const std::int64_t columns : {1, 19, 64}) {
    const Tensor dy = random({3, 5, columns}, -1, 1);
    for (const bool adds : {false, true}) {
      const Tensor start = random({7, columns}, -1, 1, 3), start_p = random({6, columns}, -1, 1, 4);
      std::vector<float> table(static_cast<std::size_t>(7 * columns));
      std::vector<float> positions(static_cast<std::size_t>(6 * columns));
      if (adds) {
        std::ranges::copy(start.values<float>(), table.begin());
        std::ranges::copy(start_p.values<float>(), positions.begin());
      }
      for (std::int64_t i = 0; i < 15; ++i) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const float d = dy.data<float>()[i * columns + c];
          table[static_cast<std::size_t>(ids.data<std::int32_t>()[i] * columns + c)] += d;
          positions[static_cast<std::size_t>(i % 5 * columns + c)] += d;
        }
      }
      for (OpContext* context : {&context_, &three}) {
        const Tensor to =
            of({start.values<float>().begin(), start.values<float>().end()}, start.shape());
        const Tensor to_p =
            of({start_p.values<float>().begin(), start_p.values<float>().end()}, start_p.shape());
        ops::embedding_backward(*context, ids, dy, to, adds);
        ops::embedding_backward_positions(*context, dy, to_p, adds);
        EXPECT_EQ(bits(to), bits(table));
        EXPECT_EQ(bits(to_p), bits(positions));
      }
    }
  }
}

TEST_F(EmbeddingTest, NoTokensGiveNoGradient) {
  const Tensor none = Tensor::empty({0, 5}, DType::i32, allocator_, "test");
  const Tensor dy = Tensor::empty({0, 5, 3}, DType::f32, allocator_, "test");
  const Tensor table = random({7, 3}, 1, 2), positions = random({5, 3}, 1, 2);
  EXPECT_EQ(ops::embedding(context_, none, table, positions).shape(), (Shape{0, 5, 3}));
  ops::embedding_backward(context_, none, dy, table, false);
  ops::embedding_backward_positions(context_, dy, positions, false);
  for (const Tensor& x : {table, positions}) {
    for (const float value : x.values<float>()) EXPECT_EQ(value, 0);
  }
}

TEST_F(EmbeddingTest, RefusesTokensBeyondTheTable) {
  const Tensor table = random({7, 3}, -1, 1);
  for (const std::int32_t bad : {-1, 7}) {
    const Tensor ids = tokens({0, bad}, {1, 2});
    EXPECT_THROW(ops::embedding(context_, ids, table), InternalError);
    EXPECT_THROW(ops::embedding_backward(context_, ids, random({1, 2, 3}, 0, 1), table, true),
                 InternalError);
  }
  EXPECT_THROW(ops::embedding(context_, tokens({0, 1}, {1, 2}), table, random({1, 3}, 0, 1)),
               InternalError);
}

}  // namespace
}  // namespace dtrain
