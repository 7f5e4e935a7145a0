#include "dtrain/core/ops/attention.h"

#include "dtrain/tests/reference/attention.h"
#include "dtrain/tests/reference/finite_difference.h"
#include "dtrain/tests/unit/ops_simd/support.h"

namespace dtrain {
namespace {

class AttentionTest : public OpsTest {
 protected:
  using Inputs = reference::Attention::Inputs;

  struct Case {
    std::int64_t samples, heads, queries, keys, size;
    bool causal = false;
    bool masked = false;
    float dropout = 0;
  };

  struct Given {
    Tensor q, k, v, dy;
    ops::AttentionOptions options;
    reference::Attention reference;
    std::vector<std::int64_t> positions;
    Inputs inputs() const { return {doubles(q), doubles(k), doubles(v)}; }
  };

  void make(const Case& c, Given& given) {
    const std::int64_t columns = c.heads * c.size;
    given.q = random({c.samples, c.queries, columns}, -2, 2, 1);
    given.k = random({c.samples, c.keys, columns}, -2, 2, 2);
    given.v = random({c.samples, c.keys, columns}, -2, 2, 3);
    given.dy = random({c.samples, c.queries, columns}, -1, 1, 4);
    given.reference = {.samples = static_cast<std::size_t>(c.samples),
                       .heads = static_cast<std::size_t>(c.heads),
                       .queries = static_cast<std::size_t>(c.queries),
                       .keys = static_cast<std::size_t>(c.keys),
                       .size = static_cast<std::size_t>(c.size),
                       .causal = c.causal,
                       .key_mask = {},
                       .dropout = c.dropout,
                       .key = RandomKey(77),
                       .positions = {}};
    given.options.heads = c.heads;
    given.options.causal = c.causal;
    if (c.masked) {
      // Sample 0 has padding at both ends, sample 1 nothing but padding.
      given.options.key_mask = Tensor::zeros({c.samples, c.keys}, DType::u8, allocator_, "mask");
      const auto mask = given.options.key_mask.values<std::uint8_t>();
      for (std::int64_t s = 1; s < c.keys - 2; ++s) mask[static_cast<std::size_t>(s)] = 1;
      given.reference.key_mask.assign(mask.begin(), mask.end());
    }
    for (std::int64_t n = 0; n < c.samples; ++n) given.positions.push_back(5 + 3 * n);
    given.reference.positions = given.positions;
    given.options.dropout = c.dropout;
    given.options.key = RandomKey(77);
    given.options.positions = given.positions;
  }

  // [N, T, 3 C] of [N, T, C] each.
  Tensor pack(const Tensor& q, const Tensor& k, const Tensor& v) {
    const std::int64_t columns = q.shape()[2];
    const Tensor qkv =
        Tensor::empty({q.shape()[0], q.shape()[1], 3 * columns}, DType::f32, allocator_, "test");
    float* to = qkv.data<float>();
    for (std::int64_t row = 0; row < q.shape()[0] * q.shape()[1]; ++row) {
      for (const Tensor& part : {q, k, v}) {
        to = std::copy_n(part.data<float>() + row * columns, columns, to);
      }
    }
    return qkv;
  }
};

TEST_F(AttentionTest, ReferenceMatchesFiniteDifferences) {
  for (const Case& c : {Case{2, 2, 3, 4, 2}, Case{2, 1, 4, 4, 3, true, true},
                        Case{1, 2, 3, 3, 2, true, false, 0.4F}}) {
    Given given;
    make(c, given);
    const std::vector<double> dy = doubles(given.dy);
    const auto objective = [&](const Inputs& in) {
      const std::vector<double> y = given.reference.forward(in);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const Inputs at = given.inputs();
    const Inputs d = given.reference.backward(at, dy);
    const auto of = [&](std::vector<double> Inputs::*which) {
      return reference::finite_difference(
          [&](const std::vector<double>& x) {
            Inputs in = at;
            in.*which = x;
            return objective(in);
          },
          at.*which);
    };
    EXPECT_LE(relative_error(d.q, of(&Inputs::q)), 1e-8);
    EXPECT_LE(relative_error(d.k, of(&Inputs::k)), 1e-8);
    EXPECT_LE(relative_error(d.v, of(&Inputs::v)), 1e-8);
  }
}

TEST_F(AttentionTest, MatchesReference) {
  const std::vector<Case> cases = {
      {1, 1, 1, 1, 1},
      {2, 2, 5, 7, 3},
      {1, 2, 64, 64, 64, true},
      {2, 3, 65, 65, 17, true},
      {1, 1, 130, 130, 80, true},
      {2, 1, 70, 131, 16, false, true},
      {2, 2, 67, 67, 8, true, true},
      {2, 2, 66, 66, 20, true, false, 0.25F},
      {3, 1, 63, 200, 33, false, false, 0.5F},
  };
  for_each_instruction_set([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << c.samples << " x " << c.heads << ", " << c.queries << " x "
                                      << c.keys << " of " << c.size);
      Given given;
      make(c, given);
      const ops::AttentionOutput out =
          ops::attention(context_, given.q, given.k, given.v, given.options);
      EXPECT_LE(relative_error(doubles(out.y), given.reference.forward(given.inputs())), 2e-6);
      const ops::AttentionGradients d = ops::attention_backward(context_, given.q, given.k, given.v,
                                                                out, given.dy, given.options);
      const Inputs expected = given.reference.backward(given.inputs(), doubles(given.dy));
      // One key: probabilities are 1 and the scores have no gradient.
      if (c.keys > 1) {
        EXPECT_LE(relative_error(doubles(d.dq), expected.q), 5e-6);
        EXPECT_LE(relative_error(doubles(d.dk), expected.k), 5e-6);
      }
      EXPECT_LE(relative_error(doubles(d.dv), expected.v), 5e-6);
    }
  });
}

TEST_F(AttentionTest, OfPackedQueriesKeysAndValuesIsTheSameToTheBit) {
  Given given;
  make({2, 3, 70, 70, 9, true, true, 0.2F}, given);
  const ops::AttentionOutput apart =
      ops::attention(context_, given.q, given.k, given.v, given.options);
  const ops::AttentionGradients d =
      ops::attention_backward(context_, given.q, given.k, given.v, apart, given.dy, given.options);
  const Tensor qkv = pack(given.q, given.k, given.v);
  const ops::AttentionOutput together = ops::attention(context_, qkv, given.options);
  EXPECT_EQ(bits(together.y), bits(apart.y));
  EXPECT_EQ(bits(ops::attention_backward(context_, qkv, together, given.dy, given.options)),
            bits(pack(d.dq, d.dk, d.dv)));
}

TEST_F(AttentionTest, BitsDoNotDependOnThreads) {
  OpContext three(allocator_, 3);
  Given given;
  make({2, 4, 100, 100, 24, true, false, 0.1F}, given);
  const Tensor qkv = pack(given.q, given.k, given.v);
  const ops::AttentionOutput a = ops::attention(context_, qkv, given.options);
  const ops::AttentionOutput b = ops::attention(three, qkv, given.options);
  EXPECT_EQ(bits(a.y), bits(b.y));
  EXPECT_EQ(bits(ops::attention_backward(context_, qkv, a, given.dy, given.options)),
            bits(ops::attention_backward(three, qkv, b, given.dy, given.options)));
}

TEST_F(AttentionTest, LaterTokensDoNotChangeEarlierOnes) {
  Given given;
  make({1, 2, 90, 90, 12, true}, given);
  const Tensor before = ops::attention(context_, given.q, given.k, given.v, given.options).y;
  given.v.values<float>().back() = 1e6F;
  given.k.values<float>().back() = 1e6F;
  const Tensor after = ops::attention(context_, given.q, given.k, given.v, given.options).y;
  const std::size_t earlier = 89 * 24;
  EXPECT_EQ(bits(before.values<float>().first(earlier)),
            bits(after.values<float>().first(earlier)));
  EXPECT_NE(bits(before), bits(after));
}

TEST_F(AttentionTest, LargeScoresDoNotOverflow) {
  Given given;
  make({1, 1, 80, 80, 4}, given);
  for (float& value : given.q.values<float>()) value *= 100;
  const Tensor y = ops::attention(context_, given.q, given.k, given.v, given.options).y;
  EXPECT_LE(relative_error(doubles(y), given.reference.forward(given.inputs())), 1e-4);
}

TEST_F(AttentionTest, NaNIsNotHidden) {
  Given given;
  make({1, 1, 70, 70, 4, true}, given);
  given.q.values<float>()[3 * 4] = NAN;
  const Tensor y = ops::attention(context_, given.q, given.k, given.v, given.options).y;
  for (std::size_t t = 0; t < 70; ++t) {
    EXPECT_EQ(std::isnan(y.values<float>()[t * 4]), t == 3) << t;
  }
}

TEST_F(AttentionTest, RefusesWhatDoesNotFit) {
  Given given;
  make({1, 2, 4, 5, 3}, given);
  given.options.causal = true;
  EXPECT_THROW(ops::attention(context_, given.q, given.k, given.v, given.options), InternalError);
  given.options.causal = false;
  given.options.heads = 4;
  EXPECT_THROW(ops::attention(context_, given.q, given.k, given.v, given.options), InternalError);
}

}  // namespace
}  // namespace dtrain
