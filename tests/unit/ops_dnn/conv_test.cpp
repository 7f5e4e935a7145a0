#include "dtrain/core/ops/conv.h"

#include "support.h"

#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/weight_cache.h"
#include "dtrain/tests/reference/conv.h"
#include "dtrain/tests/reference/finite_difference.h"

namespace dtrain {
namespace {

using reference::ConvSizes;

const std::vector<ConvSizes> cases{
    // One of everything, and images of one pixel.
    {.n = 1, .h = 1, .w = 1, .i = 1, .o = 1, .kh = 1, .kw = 1},
    {.n = 2, .h = 1, .w = 1, .i = 16, .o = 32, .kh = 3, .kw = 3, .padding = 1},
    {.n = 1, .h = 1, .w = 9, .i = 3, .o = 5, .kh = 1, .kw = 3},
    // The first and second layers of the models.
    {.n = 3, .h = 28, .w = 28, .i = 1, .o = 32, .kh = 3, .kw = 3, .padding = 1},
    {.n = 4, .h = 14, .w = 14, .i = 32, .o = 64, .kh = 3, .kw = 3, .padding = 1},
    {.n = 2, .h = 32, .w = 32, .i = 3, .o = 64, .kh = 3, .kw = 3, .padding = 1},
    {.n = 1, .h = 32, .w = 32, .i = 3, .o = 64, .kh = 7, .kw = 7, .stride = 2, .padding = 3},
    {.n = 8, .h = 14, .w = 14, .i = 64, .o = 64, .kh = 3, .kw = 3, .padding = 1},
    {.n = 2, .h = 14, .w = 14, .i = 64, .o = 128, .kh = 1, .kw = 1, .stride = 2},
    {.n = 2, .h = 14, .w = 14, .i = 64, .o = 128, .kh = 3, .kw = 3, .stride = 2, .padding = 1},
    // Channels that fill no vector.
    {.n = 2, .h = 7, .w = 5, .i = 3, .o = 7, .kh = 3, .kw = 3, .padding = 1},
    {.n = 2, .h = 7, .w = 5, .i = 17, .o = 33, .kh = 3, .kw = 3},
    {.n = 2, .h = 7, .w = 5, .i = 16, .o = 1, .kh = 3, .kw = 3, .padding = 1},
    {.n = 2, .h = 7, .w = 5, .i = 24, .o = 40, .kh = 3, .kw = 3, .padding = 1},
    {.n = 2, .h = 9, .w = 9, .i = 2, .o = 16, .kh = 5, .kw = 5, .padding = 2},
    // Kernels that are not square, strides that leave pixels over, wide padding.
    {.n = 2, .h = 9, .w = 8, .i = 8, .o = 8, .kh = 3, .kw = 1},
    {.n = 2, .h = 8, .w = 8, .i = 16, .o = 16, .kh = 1, .kw = 1, .stride = 2},
    {.n = 2, .h = 10, .w = 11, .i = 16, .o = 16, .kh = 2, .kw = 2, .stride = 3},
    {.n = 1, .h = 5, .w = 5, .i = 16, .o = 16, .kh = 3, .kw = 3, .padding = 2},
    {.n = 8, .h = 13, .w = 11, .i = 32, .o = 32, .kh = 3, .kw = 3},
    // Dilation.
    {.n = 2, .h = 9, .w = 9, .i = 16, .o = 16, .kh = 3, .kw = 3, .padding = 2, .dilation = 2},
    {.n = 2, .h = 9, .w = 9, .i = 5, .o = 6, .kh = 3, .kw = 3, .dilation = 3},
    // Groups, up to one per channel.
    {.n = 2, .h = 6, .w = 6, .i = 32, .o = 64, .kh = 3, .kw = 3, .padding = 1, .groups = 2},
    {.n = 2, .h = 6, .w = 6, .i = 12, .o = 20, .kh = 3, .kw = 3, .padding = 1, .groups = 4},
    {.n = 2, .h = 6, .w = 6, .i = 32, .o = 32, .kh = 3, .kw = 3, .padding = 1, .groups = 32},
    {.n = 2, .h = 6, .w = 6, .i = 6, .o = 12, .kh = 3, .kw = 3, .padding = 1, .groups = 6},
    {.n = 2, .h = 6, .w = 6, .i = 7, .o = 7, .kh = 3, .kw = 3, .padding = 1, .groups = 7},
};

std::string name_of(const ConvSizes& s) {
  return fmt::format("n {} {}x{} {}->{} k {}x{} stride {} padding {} dilation {} groups {}", s.n,
                     s.h, s.w, s.i, s.o, s.kh, s.kw, s.stride, s.padding, s.dilation, s.groups);
}

ops::Conv2dOptions options_of(const ConvSizes& s) {
  return {int(s.stride), int(s.padding), int(s.dilation), int(s.groups)};
}

Shape x_shape(const ConvSizes& s) {
  return {s.n, s.h, s.w, s.i};
}
Shape w_shape(const ConvSizes& s) {
  return {s.o, s.i / s.groups, s.kh, s.kw};
}
Shape y_shape(const ConvSizes& s) {
  return {s.n, s.out_h(), s.out_w(), s.o};
}

// Plain, and the blocks that fit.
std::vector<Layout> layouts_of(std::int64_t channels) {
  std::vector<Layout> layouts{{0}};
  for (const int block : {8, 16}) {
    if (channels % block == 0) layouts.push_back({block});
  }
  return layouts;
}

class ConvTest : public DnnTest {};

TEST_F(ConvTest, AgreesWithTheReference) {
  for (const ConvSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    const auto x = normal_values(x_shape(s).elements(), 1);
    const auto w = normal_values(w_shape(s).elements(), 2);
    const auto b = normal_values(s.o, 3);
    const auto dy = normal_values(y_shape(s).elements(), 4);
    const auto y = reference::conv2d(s, x, w, b);
    const auto y_without_bias = reference::conv2d(s, x, w, {});
    const auto g = reference::conv2d_backward(s, x, w, dy);
    const Tensor tw = tensor_of(w, w_shape(s)), tb = tensor_of(b, {s.o});
    const auto options = options_of(s);
    const Layout output = ops::conv2d_output_layout(x_shape(s), w_shape(s), options);
    for (const Layout layout : layouts_of(s.i)) {
      SCOPED_TRACE(fmt::format("x in blocks of {}", layout.channel_block));
      const Tensor tx = tensor_of(x, x_shape(s), layout);
      const Tensor ty = ops::conv2d(context_, tx, tw, tb, options);
      EXPECT_EQ(ty.layout(), output);
      EXPECT_EQ(ty.shape(), y_shape(s));
      EXPECT_LE(relative_error(values_of(ty), y), 1e-5);
      EXPECT_LE(
          relative_error(values_of(ops::conv2d(context_, tx, tw, {}, options)), y_without_bias),
          1e-5);
      for (const Layout dy_layout : layouts_of(s.o)) {
        SCOPED_TRACE(fmt::format("dy in blocks of {}", dy_layout.channel_block));
        const Tensor tdy = tensor_of(dy, y_shape(s), dy_layout);
        const Tensor dx =
            ops::conv2d_backward_input(context_, tdy, tw, x_shape(s), layout, options);
        EXPECT_EQ(dx.layout(), layout);
        EXPECT_LE(relative_error(values_of(dx), g.dx), 1e-5);
        const Tensor dw = unwritten(w_shape(s)), db = unwritten({s.o});
        ops::conv2d_backward_weight(context_, tx, tdy, dw, options);
        ops::conv2d_backward_bias(context_, tdy, db);
        EXPECT_LE(relative_error(values_of(dw), g.dw), 1e-5);
        EXPECT_LE(relative_error(values_of(db), g.db), 2e-6);
      }
    }
  }
}

TEST_F(ConvTest, ReferenceAgreesWithFiniteDifferences) {
  for (const ConvSizes& s :
       {ConvSizes{.n = 2, .h = 4, .w = 5, .i = 2, .o = 3, .kh = 3, .kw = 2, .padding = 1},
        ConvSizes{.n = 1,
        .h = 5,
        .w = 5,
        .i = 4,
        .o = 4,
        .kh = 2,
        .kw = 2,
        .stride = 2,
        .padding = 1,
        .dilation = 2,
        .groups = 2}}) {
    SCOPED_TRACE(name_of(s));
    const auto x = normal_values(x_shape(s).elements(), 1);
    const auto w = normal_values(w_shape(s).elements(), 2);
    const auto b = normal_values(s.o, 3);
    const auto seed = normal_values(y_shape(s).elements(), 4);
    const auto loss = [&](const std::vector<double>& y) {
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * seed[i];
      return sum;
    };
    const auto g = reference::conv2d_backward(s, x, w, seed);
    using reference::finite_difference;
    EXPECT_LE(relative_error(g.dx, finite_difference(
                                       [&](const std::vector<double>& v) {
                                         return loss(reference::conv2d(s, v, w, b));
                                       },
                                       x)),
              1e-8);
    EXPECT_LE(relative_error(g.dw, finite_difference(
                                       [&](const std::vector<double>& v) {
                                         return loss(reference::conv2d(s, x, v, b));
                                       },
                                       w)),
              1e-8);
    EXPECT_LE(relative_error(g.db, finite_difference(
                                       [&](const std::vector<double>& v) {
                                         return loss(reference::conv2d(s, x, w, v));
                                       },
                                       b)),
              1e-8);
  }
}

TEST_F(ConvTest, SameBitsInEveryContextAndLane) {
  for (const ConvSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    const auto options = options_of(s);
    const Tensor x = tensor_of(normal_values(x_shape(s).elements(), 1), x_shape(s));
    const Tensor w = tensor_of(normal_values(w_shape(s).elements(), 2), w_shape(s));
    const Tensor b = tensor_of(normal_values(s.o, 3), {s.o});
    const Tensor dy = tensor_of(normal_values(y_shape(s).elements(), 4), y_shape(s),
                                ops::conv2d_output_layout(x_shape(s), w_shape(s), options));
    expect_same_bits_everywhere([&](OpContext& context) {
      Bytes bytes;
      append_bytes(bytes, ops::conv2d(context, x, w, b, options));
      append_bytes(bytes,
                   ops::conv2d_backward_input(context, dy, w, x.shape(), x.layout(), options));
      const Tensor dw = Tensor::empty(w.shape(), DType::f32, context.allocator(), "dw");
      const Tensor db = Tensor::empty({s.o}, DType::f32, context.allocator(), "db");
      ops::conv2d_backward_weight(context, x, dy, dw, options);
      ops::conv2d_backward_bias(context, dy, db);
      append_bytes(bytes, dw);
      append_bytes(bytes, db);
      return bytes;
    });
  }
}

// Bits belong to the number of threads, which is the recipe's; values do not.
TEST_F(ConvTest, ATeamAgreesWithTheReferenceAndWithItself) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see the barriers of OpenMP";
#endif
  for (const ConvSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    const auto x = normal_values(x_shape(s).elements(), 1);
    const auto w = normal_values(w_shape(s).elements(), 2);
    const auto dy = normal_values(y_shape(s).elements(), 4);
    const auto y = reference::conv2d(s, x, w, {});
    const auto g = reference::conv2d_backward(s, x, w, dy);
    const auto options = options_of(s);
    Bytes first;
    for (int round = 0; round < 3; ++round) {
      OpContext team(allocator_, 2);
      team.bind_to_this_thread();
      const Tensor tx = tensor_of(x, x_shape(s)), tw = tensor_of(w, w_shape(s)),
                   tdy = tensor_of(dy, y_shape(s)), dw = unwritten(w_shape(s));
      const Tensor ty = ops::conv2d(team, tx, tw, {}, options);
      const Tensor dx = ops::conv2d_backward_input(team, tdy, tw, x_shape(s), {}, options);
      ops::conv2d_backward_weight(team, tx, tdy, dw, options);
      EXPECT_LE(relative_error(values_of(ty), y), 1e-5);
      EXPECT_LE(relative_error(values_of(dx), g.dx), 1e-5);
      EXPECT_LE(relative_error(values_of(dw), g.dw), 1e-5);
      Bytes bytes;
      for (const Tensor& t : {ty, dx, dw}) append_bytes(bytes, t);
      if (round == 0) first = bytes;
      EXPECT_TRUE(bytes == first);
    }
  }
  context_.bind_to_this_thread();
}

// Adding is writing and adding afterwards, to the bit.
TEST_F(ConvTest, WeightGradientsAreAddedToWhatIsThere) {
  for (const ConvSizes& s : cases) {
    SCOPED_TRACE(name_of(s));
    const Tensor x = tensor_of(normal_values(x_shape(s).elements(), 1), x_shape(s));
    const Tensor dy = tensor_of(normal_values(y_shape(s).elements(), 2), y_shape(s));
    const Tensor before = tensor_of(normal_values(w_shape(s).elements(), 3), w_shape(s));
    const Tensor part = unwritten(w_shape(s));
    ops::conv2d_backward_weight(context_, x, dy, part, options_of(s));
    const Tensor expected = tensor_of(values_of(before), w_shape(s));
    ops::add_in_place(expected, part);
    ops::conv2d_backward_weight(context_, x, dy, before, options_of(s), true);
    EXPECT_EQ(values_of(before), values_of(expected));
  }
}

// Packed once per step, for all contexts; new weights count from the next step on.
TEST_F(ConvTest, WeightsComeFromTheCache) {
  const ConvSizes s{.n = 2, .h = 8, .w = 8, .i = 64, .o = 64, .kh = 3, .kw = 3, .padding = 1};
  const Tensor x = tensor_of(normal_values(x_shape(s).elements(), 1), x_shape(s));
  const Tensor w = tensor_of(normal_values(w_shape(s).elements(), 2), w_shape(s));
  const auto both = [&](OpContext& context) {
    const Tensor y = ops::conv2d(context, x, w, {}, options_of(s));
    Bytes bytes;
    append_bytes(bytes, y);
    append_bytes(bytes,
                 ops::conv2d_backward_input(context, y, w, x.shape(), Layout{}, options_of(s)));
    return bytes;
  };
  const Bytes first = both(context_);
  Allocator packed("packed");
  WeightCache cache(packed);
  cache.begin_step();
  std::vector<Bytes> results(3);
  {
    std::vector<std::jthread> lanes;
    for (Bytes& result : results) {
      lanes.emplace_back([&] {
        OpContext lane(allocator_, 1);
        lane.bind_to_this_thread();
        use_weight_cache(lane, &cache);
        for (int i = 0; i < 3; ++i) result = both(lane);
      });
    }
  }
  for (const Bytes& result : results) EXPECT_TRUE(result == first);
  const auto in_use = packed.stats().allocated;
  if (ops::conv2d_output_layout(x.shape(), w.shape(), options_of(s)) != Layout{}) {
    EXPECT_GE(in_use, w.bytes());  // else the kernels take plain weights
  }
  EXPECT_LE(in_use, 2 * w.bytes());

  use_weight_cache(context_, &cache);
  for (float& value : w.values<float>()) value *= 2;
  if (in_use > 0) {
    EXPECT_TRUE(both(context_) == first) << "weights must not change within a step";
  }
  cache.begin_step();
  const Bytes doubled = both(context_);
  EXPECT_EQ(packed.stats().allocated, in_use);
  use_weight_cache(context_, nullptr);
  EXPECT_TRUE(doubled == both(context_));
  EXPECT_FALSE(doubled == first);
}

double rms_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, squares = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    squares += b[i] * b[i];
  }
  return std::sqrt(difference / squares);
}

// Forward and both gradients under each choice. auto is one of the two, by the shape.
TEST_F(ConvTest, TheAlgorithmIsTheRecipesChoice) {
  const ConvSizes large{.n = 8, .h = 14, .w = 14, .i = 64, .o = 64, .kh = 3, .kw = 3, .padding = 1};
  const ConvSizes small{.n = 2, .h = 6, .w = 7, .i = 64, .o = 64, .kh = 3, .kw = 3, .padding = 1};
  for (const ConvSizes& s : {large, small}) {
    SCOPED_TRACE(name_of(s));
    const auto x = normal_values(x_shape(s).elements(), 1);
    const auto w = normal_values(w_shape(s).elements(), 2);
    const auto dy = normal_values(y_shape(s).elements(), 4);
    const auto y = reference::conv2d(s, x, w, {});
    const auto g = reference::conv2d_backward(s, x, w, dy);
    const Tensor tx = tensor_of(x, x_shape(s)), tw = tensor_of(w, w_shape(s)),
                 tdy = tensor_of(dy, y_shape(s));
    const auto results_of = [&](Convolution convolution) {
      OpContext context(allocator_, 1, convolution);
      const Tensor dw = unwritten(w_shape(s));
      ops::conv2d_backward_weight(context, tx, tdy, dw, options_of(s));
      return std::vector{values_of(ops::conv2d(context, tx, tw, {}, options_of(s))),
                         values_of(ops::conv2d_backward_input(context, tdy, tw, x_shape(s),
                                                              Layout{}, options_of(s))),
                         values_of(dw)};
    };
    const std::vector expected{y, g.dx, g.dw};
    const auto direct = results_of(Convolution::direct);
    const auto winograd = results_of(Convolution::winograd);
    for (int i = 0; i < 3; ++i) {
      EXPECT_LE(relative_error(direct[i], expected[i]), 1e-5) << i;
      EXPECT_LE(relative_error(winograd[i], expected[i]), 1e-4) << i;
      EXPECT_LE(rms_error(direct[i], expected[i]), 1e-6) << i;
      EXPECT_LE(rms_error(winograd[i], expected[i]), 5e-6) << i;
    }
    const auto automatic = results_of(Convolution::automatic);
    EXPECT_TRUE(automatic == (s.h == small.h ? direct : winograd));
  }
  EXPECT_EQ(convolution_named("winograd"), Convolution::winograd);
  EXPECT_THROW(convolution_named("fft"), ConfigError);
}

TEST_F(ConvTest, EmptyBatch) {
  for (ConvSizes s : cases) {
    s.n = 0;
    const auto options = options_of(s);
    const Layout layout = ops::conv2d_output_layout(x_shape(s), w_shape(s), options);
    const Tensor x = unwritten(x_shape(s)),
                 dy = Tensor::empty(y_shape(s), DType::f32, allocator_, "test", layout);
    const Tensor w = tensor_of(normal_values(w_shape(s).elements(), 1), w_shape(s));
    EXPECT_EQ(ops::conv2d(context_, x, w, {}, options).shape(), y_shape(s));
    EXPECT_EQ(ops::conv2d_backward_input(context_, dy, w, x_shape(s), x.layout(), options).shape(),
              x_shape(s));
    const Tensor dw = unwritten(w_shape(s)), db = unwritten({s.o});
    ops::conv2d_backward_weight(context_, x, dy, dw, options);
    ops::conv2d_backward_bias(context_, dy, db);
    EXPECT_EQ(values_of(dw), std::vector<double>(s.w_elements()));
    EXPECT_EQ(values_of(db), std::vector<double>(std::size_t(s.o)));
  }
}

TEST_F(ConvTest, WarmCallsAskTheSystemForNothing) {
  const ConvSizes s{.n = 8, .h = 14, .w = 14, .i = 32, .o = 64, .kh = 3, .kw = 3, .padding = 1};
  const Tensor x = tensor_of(normal_values(x_shape(s).elements(), 1), x_shape(s));
  const Tensor w = tensor_of(normal_values(w_shape(s).elements(), 2), w_shape(s));
  const Tensor dw = unwritten(w_shape(s)), db = unwritten({s.o});
  const auto step = [&] {
    const Tensor y = ops::conv2d(context_, x, w, {}, options_of(s));
    ops::conv2d_backward_input(context_, y, w, x.shape(), x.layout(), options_of(s));
    ops::conv2d_backward_weight(context_, x, y, dw, options_of(s));
    ops::conv2d_backward_bias(context_, y, db);
  };
  step();
  const auto before = allocator_.stats().system_calls;
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(allocator_.stats().system_calls, before);
}

TEST_F(ConvTest, RefusesShapesThatDoNotFit) {
  const Tensor x = unwritten({1, 4, 4, 3});
  EXPECT_THROW(ops::conv2d(context_, x, unwritten({2, 4, 3, 3}), {}, {}), InternalError);
  EXPECT_THROW(ops::conv2d(context_, x, unwritten({2, 3, 5, 5}), {}, {}), InternalError);
  EXPECT_THROW(ops::conv2d(context_, x, unwritten({2, 3, 3, 3}), {}, {.stride = 0}), InternalError);
  EXPECT_THROW(ops::conv2d(context_, x, unwritten({2, 3, 3, 3}), unwritten({3}), {}),
               InternalError);
}

}  // namespace
}  // namespace dtrain
