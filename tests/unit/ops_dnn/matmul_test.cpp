#include "dtrain/core/ops/matmul.h"

#include "support.h"

#include "dtrain/tests/reference/finite_difference.h"
#include "dtrain/tests/reference/matmul.h"

namespace dtrain {
namespace {

struct Case {
  std::int64_t n, k, m;
};

// Sizes of one, odd sizes, sizes around vectors, and those of the models.
const std::vector<Case> cases{
    {1, 1, 1},     {1, 1, 7},      {5, 1, 1},       {1, 9, 1},    {7, 13, 1},    {1, 784, 10},
    {32, 128, 10}, {32, 784, 256}, {3, 17, 33},     {16, 16, 16}, {31, 65, 127}, {33, 1, 64},
    {2, 1000, 3},  {64, 3, 1000},  {32, 3136, 128}, {15, 15, 15}, {255, 31, 9}};

class LinearTest : public DnnTest {};

TEST_F(LinearTest, AgreesWithTheReference) {
  for (const auto& [n, k, m] : cases) {
    SCOPED_TRACE(fmt::format("n {} k {} m {}", n, k, m));
    const auto x = normal_values(n * k, 1);
    const auto w = normal_values(m * k, 2);
    const auto b = normal_values(m, 3);
    const auto dy = normal_values(n * m, 4);
    const Tensor tx = tensor_of(x, {n, k}), tw = tensor_of(w, {m, k}), tb = tensor_of(b, {m}),
                 tdy = tensor_of(dy, {n, m});
    const auto un = std::size_t(n), uk = std::size_t(k), um = std::size_t(m);
    EXPECT_LE(relative_error(values_of(ops::linear(context_, tx, tw, tb)),
                             reference::linear(x, w, b, un, uk, um)),
              1e-5);
    EXPECT_LE(relative_error(values_of(ops::linear(context_, tx, tw, {})),
                             reference::linear(x, w, {}, un, uk, um)),
              1e-5);
    const auto g = reference::linear_backward(x, w, dy, un, uk, um);
    EXPECT_LE(relative_error(values_of(ops::linear_backward_input(context_, tdy, tw)), g.dx), 1e-5);
    const Tensor dw = unwritten({m, k}), db = unwritten({m});
    ops::linear_backward_weight(context_, tx, tdy, dw);
    ops::linear_backward_bias(context_, tdy, db);
    EXPECT_LE(relative_error(values_of(dw), g.dw), 1e-5);
    EXPECT_LE(relative_error(values_of(db), g.db), 1e-5);
  }
}

// The same numbers under the other order of weights, with more axes, added to what is there, and
// with sizes that are cut into parts (Note [Long products]).
TEST_F(LinearTest, EveryFormAgreesWithTheReference) {
  const std::vector<Case> forms{{6, 17, 33}, {6, 1, 5}, {4, 384, 64}, {4, 20001, 7}, {4, 7, 20001}};
  for (const auto& [n, k, m] : forms) {
    SCOPED_TRACE(fmt::format("n {} k {} m {}", n, k, m));
    const auto x = normal_values(n * k, 1), w = normal_values(m * k, 2), b = normal_values(m, 3),
               dy = normal_values(n * m, 4), residual = normal_values(n * m, 5),
               start = normal_values(m * k, 6);
    const auto un = std::size_t(n), uk = std::size_t(k), um = std::size_t(m);
    const auto transposed = [&](const std::vector<double>& matrix) {  // [m, k] to [k, m]
      std::vector<double> result(matrix.size());
      for (std::size_t i = 0; i < um; ++i) {
        for (std::size_t j = 0; j < uk; ++j) result[j * um + i] = matrix[i * uk + j];
      }
      return result;
    };
    const auto sum = [](std::vector<double> a, const std::vector<double>& other) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] += other[i];
      return a;
    };
    const auto y = reference::linear(x, w, b, un, uk, um);
    const auto g = reference::linear_backward(x, w, dy, un, uk, um);
    const Tensor tx = tensor_of(x, {2, n / 2, k}), tdy = tensor_of(dy, {2, n / 2, m}),
                 tb = tensor_of(b, {m}), tr = tensor_of(residual, {2, n / 2, m});
    for (const auto order : {ops::WeightOrder::out_in, ops::WeightOrder::in_out}) {
      const bool in_out = order == ops::WeightOrder::in_out;
      const Shape shape = in_out ? Shape{k, m} : Shape{m, k};
      const Tensor tw = tensor_of(in_out ? transposed(w) : w, shape);
      const Tensor ty = ops::linear(context_, tx, tw, tb, order);
      EXPECT_EQ(ty.shape(), (Shape{2, n / 2, m}));
      EXPECT_LE(relative_error(values_of(ty), y), 1e-5);
      EXPECT_LE(
          relative_error(values_of(ops::linear(context_, tx, tw, tb, order, tr)), sum(y, residual)),
          1e-5);
      EXPECT_LE(relative_error(values_of(ops::linear(context_, tx, tw, {}, order, tr)),
                               sum(reference::linear(x, w, {}, un, uk, um), residual)),
                1e-5);
      EXPECT_LE(
          relative_error(values_of(ops::linear_backward_input(context_, tdy, tw, order)), g.dx),
          1e-5);
      const Tensor dw = tensor_of(in_out ? transposed(start) : start, shape);
      ops::linear_backward_weight(context_, tx, tdy, dw, order, true);
      const auto expected = sum(g.dw, start);
      EXPECT_LE(relative_error(values_of(dw), in_out ? transposed(expected) : expected), 1e-5);
      const Tensor db = unwritten({m});
      ops::linear_backward_bias(context_, tdy, db);
      EXPECT_LE(relative_error(values_of(db), g.db), 1e-5);
    }
  }
}

TEST_F(LinearTest, ReferenceAgreesWithFiniteDifferences) {
  const std::size_t n = 3, k = 4, m = 2;
  const auto x = normal_values(n * k, 1), w = normal_values(m * k, 2), b = normal_values(m, 3),
             seed = normal_values(n * m, 4);
  const auto loss = [&](const std::vector<double>& y) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * seed[i];
    return sum;
  };
  const auto g = reference::linear_backward(x, w, seed, n, k, m);
  using reference::finite_difference;
  EXPECT_LE(relative_error(g.dx, finite_difference(
                                     [&](const std::vector<double>& v) {
                                       return loss(reference::linear(v, w, b, n, k, m));
                                     },
                                     x)),
            1e-8);
  EXPECT_LE(relative_error(g.dw, finite_difference(
                                     [&](const std::vector<double>& v) {
                                       return loss(reference::linear(x, v, b, n, k, m));
                                     },
                                     w)),
            1e-8);
  EXPECT_LE(relative_error(g.db, finite_difference(
                                     [&](const std::vector<double>& v) {
                                       return loss(reference::linear(x, w, v, n, k, m));
                                     },
                                     b)),
            1e-8);
}

TEST_F(LinearTest, SameBitsInEveryContextAndLane) {
  for (const auto& [n, k, m] : cases) {
    SCOPED_TRACE(fmt::format("n {} k {} m {}", n, k, m));
    const Tensor x = tensor_of(normal_values(n * k, 1), {n, k});
    const Tensor w = tensor_of(normal_values(m * k, 2), {m, k});
    const Tensor b = tensor_of(normal_values(m, 3), {m});
    const Tensor dy = tensor_of(normal_values(n * m, 4), {n, m});
    expect_same_bits_everywhere([&](OpContext& context) {
      Bytes bytes;
      append_bytes(bytes, ops::linear(context, x, w, b));
      append_bytes(bytes, ops::linear_backward_input(context, dy, w));
      const Tensor dw = Tensor::empty({m, k}, DType::f32, context.allocator(), "dw");
      const Tensor db = Tensor::empty({m}, DType::f32, context.allocator(), "db");
      ops::linear_backward_weight(context, x, dy, dw);
      ops::linear_backward_bias(context, dy, db);
      append_bytes(bytes, dw);
      append_bytes(bytes, db);
      return bytes;
    });
  }
}

// Where in an arena the operands lie must not show.
TEST_F(LinearTest, SameBitsAtEveryAddress) {
  const Case c{17, 100, 33};
  const auto x = normal_values(c.n * c.k, 1), w = normal_values(c.m * c.k, 2);
  Bytes first;
  for (std::size_t shift : {0, 1, 16, 48, 1000}) {
    const auto moved = [&](const std::vector<double>& values, const Shape& shape) {
      const Tensor memory = Tensor::empty({static_cast<std::int64_t>(values.size() + shift)},
                                          DType::f32, allocator_, "test");
      std::copy(values.begin(), values.end(), memory.values<float>().begin() + shift);
      kept_.push_back(memory);
      return Tensor::wrap(memory.values<float>().subspan(shift), shape);
    };
    Bytes bytes;
    append_bytes(bytes, ops::linear(context_, moved(x, {c.n, c.k}), moved(w, {c.m, c.k}), {}));
    if (shift == 0) first = bytes;
    EXPECT_TRUE(bytes == first) << "shifted by " << shift << " floats";
  }
}

TEST_F(LinearTest, EmptyBatch) {
  const Tensor x = unwritten({0, 5}), dy = unwritten({0, 3});
  const Tensor w = tensor_of(normal_values(15, 1), {3, 5});
  EXPECT_EQ(ops::linear(context_, x, w, {}).shape(), (Shape{0, 3}));
  EXPECT_EQ(ops::linear_backward_input(context_, dy, w).shape(), (Shape{0, 5}));
  const Tensor dw = unwritten({3, 5}), db = unwritten({3});
  ops::linear_backward_weight(context_, x, dy, dw);
  ops::linear_backward_bias(context_, dy, db);
  EXPECT_EQ(values_of(dw), std::vector<double>(15));
  EXPECT_EQ(values_of(db), std::vector<double>(3));
}

TEST_F(LinearTest, WarmCallsAskTheSystemForNothing) {
  const Tensor x = tensor_of(normal_values(32 * 784, 1), {32, 784});
  const Tensor w = tensor_of(normal_values(256 * 784, 2), {256, 784});
  ops::linear(context_, x, w, {});
  const auto before = allocator_.stats().system_calls;
  for (int i = 0; i < 3; ++i) ops::linear(context_, x, w, {});
  EXPECT_EQ(allocator_.stats().system_calls, before);
}

TEST_F(LinearTest, RefusesAThreadThatIsNotBound) {
  const Tensor x = tensor_of({1}, {1, 1});
  OpContext three(allocator_, 3);
  EXPECT_THROW(ops::linear(three, x, x, {}), InternalError);
}

TEST_F(LinearTest, RefusesShapesThatDoNotFit) {
  EXPECT_THROW(ops::linear(context_, unwritten({2, 3}), unwritten({4, 5}), {}), InternalError);
  EXPECT_THROW(ops::linear(context_, unwritten({2, 3}), unwritten({4, 3}), unwritten({3})),
               InternalError);
}

}  // namespace
}  // namespace dtrain
