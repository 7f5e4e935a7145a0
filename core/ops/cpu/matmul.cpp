#include "dtrain/core/ops/matmul.h"

#include <algorithm>
#include <vector>

#include "dtrain/core/ops/cpu/channel_sums.h"
#include "dtrain/core/ops/cpu/dnnl_version.h"
#include "dtrain/core/ops/cpu/library.h"

namespace dtrain::ops {

namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// A row-major matrix, read as it lies or transposed.
struct Matrix {
  const float* data;
  bool transposed;
};

Desc matrix_desc(std::int64_t rows, std::int64_t columns, bool transposed) {
  return {{rows, columns}, dnnl::memory::data_type::f32, transposed ? Tag::ba : Tag::ab};
}

// A part of a matrix whose rows in memory, or as read columns, are `stride` elements apart.
Desc part_desc(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, dnnl::memory::data_type::f32, strides};
}

// Note [Long products]: measured, where the inner size is that of a vocabulary, parts of this many
// elements added one after the other take two thirds of the time of a single product.
constexpr std::int64_t inner_part = 4096;
constexpr std::int64_t longest_inner = 4 * inner_part;

// What is added to a product.
struct Addends {
  const float* bias = nullptr;      // [n]
  const float* residual = nullptr;  // [m, n]
  bool to_output = false;           // the product is added to what c holds
};

// c: [m, n] = a b + bias, where a, as read, is [m, k] and b [k, n], parts of matrices whose inner
// size is `whole` >= k. Measured: on one thread
// oneDNN's matmul on plain memory is never slower than its inner product, whose packed weights
// would have to be packed anew at each step.
void multiply_parts(OpContext& context, std::int64_t m, std::int64_t k, std::int64_t n,
                    std::int64_t whole, Matrix a, Matrix b, const Addends& add, float* c,
                    std::string_view who) {
  const bool has_bias = add.bias != nullptr;
  const bool has_residual = add.residual != nullptr;
  const PlanKey key{static_cast<std::int64_t>(Operation::matmul),
                    m,
                    k,
                    n,
                    a.transposed,
                    b.transposed,
                    has_bias,
                    add.to_output,
                    has_residual,
                    whole};
  const dnnl::engine& engine = context.library().engine;
  Plan& plan = context.library().plan(context, key, who, [&] {
    const bool part = whole != k;
    const Desc a_desc = part ? part_desc(m, k, a.transposed, a.transposed ? m : whole)
                             : matrix_desc(m, k, a.transposed);
    const Desc b_desc = part ? part_desc(k, n, b.transposed, b.transposed ? whole : n)
                             : matrix_desc(k, n, b.transposed);
    const Desc c_desc = matrix_desc(m, n, false);
    const Desc bias_desc = has_bias ? matrix_desc(1, n, false) : Desc();
    dnnl::primitive_attr attributes = user_scratchpad();
    dnnl::post_ops after;
    if (add.to_output) after.append_sum(1.0F);
    if (has_residual) after.append_binary(dnnl::algorithm::binary_add, c_desc);
    attributes.set_post_ops(after);
    const auto description = describe_matmul(engine, attributes, a_desc, b_desc, bias_desc, c_desc);
    std::vector<Plan::Operand> inputs{{DNNL_ARG_SRC, a_desc, a_desc},
                                      {DNNL_ARG_WEIGHTS, b_desc, b_desc}};
    if (has_bias) inputs.push_back({DNNL_ARG_BIAS, bias_desc, bias_desc});
    if (has_residual) {
      inputs.push_back(
          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(after.len() - 1) | DNNL_ARG_SRC_1, c_desc, c_desc});
    }
    return Plan(engine, dnnl::matmul(description), inputs, {DNNL_ARG_DST, c_desc, c_desc},
                description.scratchpad_desc());
  });
  if (has_bias && has_residual) {
    plan.run(context, {a.data, b.data, add.bias, add.residual}, c);
  } else if (has_bias || has_residual) {
    plan.run(context, {a.data, b.data, has_bias ? add.bias : add.residual}, c);
  } else {
    plan.run(context, {a.data, b.data}, c);
  }
}

void multiply_matrices(OpContext& context, std::int64_t m, std::int64_t k, std::int64_t n, Matrix a,
                       Matrix b, const Addends& add, float* c, std::string_view who) {
  if (k <= longest_inner) {
    multiply_parts(context, m, k, n, k, a, b, add, c, who);
    return;
  }
  for (std::int64_t first = 0; first < k; first += inner_part) {
    const Matrix of_a{a.data + (a.transposed ? first * m : first), a.transposed};
    const Matrix of_b{b.data + (b.transposed ? first : first * n), b.transposed};
    multiply_parts(context, m, std::min(inner_part, k - first), n, k, of_a, of_b,
                   first == 0 ? add : Addends{.to_output = true}, c, who);
  }
}

// A product's sizes: x is [rows, inputs] and y [rows, outputs], whatever axes the rows are.
struct Sizes {
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
};

std::int64_t rows_of(const Tensor& x, std::int64_t columns, std::string_view who) {
  DTRAIN_CHECK(x.shape().rank() >= 2 && x.shape()[-1] == columns && x.layout() == Layout{},
               "{}: {} in channel blocks of {}, expected plain [..., {}]", who,
               to_string(x.shape()), x.layout().channel_block, columns);
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.shape().rank(); ++axis) rows *= x.shape()[axis];
  return rows;
}

Sizes sizes_of(const Tensor& w, WeightOrder order, std::string_view who) {
  DTRAIN_CHECK(w.shape().rank() == 2 && w.layout() == Layout{}, "{}: a matrix of shape {}", who,
               to_string(w.shape()));
  const bool out_in = order == WeightOrder::out_in;
  return {.rows = 0, .inputs = w.shape()[out_in ? 1 : 0], .outputs = w.shape()[out_in ? 0 : 1]};
}

// x's shape with another size of the last axis.
Shape with_last(const Shape& shape, std::int64_t size) {
  std::vector<std::int64_t> sizes(shape.sizes().begin(), shape.sizes().end());
  sizes.back() = size;
  return Shape(sizes);
}

}  // namespace

Tensor linear(OpContext& context, const Tensor& x, const Tensor& w, const Tensor& bias,
              WeightOrder order, const Tensor& residual) {
  Sizes size = sizes_of(w, order, "linear");
  size.rows = rows_of(x, size.inputs, "linear");
  DTRAIN_CHECK(!bias.defined() || bias.shape() == Shape{size.outputs},
               "linear: bias {} for {} outputs", to_string(bias.shape()), size.outputs);
  const Tensor y = Tensor::empty(with_last(x.shape(), size.outputs), DType::f32,
                                 context.allocator(), "linear output");
  DTRAIN_CHECK(!residual.defined() || residual.shape() == y.shape(), "linear: {} added to {}",
               to_string(residual.shape()), to_string(y.shape()));
  if (size.rows == 0) return y;
  multiply_matrices(context, size.rows, size.inputs, size.outputs, {x.data<float>(), false},
                    {w.data<float>(), order == WeightOrder::out_in},
                    {.bias = bias.defined() ? bias.data<float>() : nullptr,
                     .residual = residual.defined() ? residual.data<float>() : nullptr},
                    y.data<float>(), "linear");
  return y;
}

Tensor linear_backward_input(OpContext& context, const Tensor& dy, const Tensor& w,
                             WeightOrder order) {
  Sizes size = sizes_of(w, order, "linear_backward_input");
  size.rows = rows_of(dy, size.outputs, "linear_backward_input");
  const Tensor dx = Tensor::empty(with_last(dy.shape(), size.inputs), DType::f32,
                                  context.allocator(), "linear input gradient");
  if (size.rows == 0) return dx;
  multiply_matrices(context, size.rows, size.outputs, size.inputs, {dy.data<float>(), false},
                    {w.data<float>(), order == WeightOrder::in_out}, {}, dx.data<float>(),
                    "linear_backward_input");
  return dx;
}

void linear_backward_weight(OpContext& context, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            WeightOrder order, bool adds) {
  Sizes size = sizes_of(dw, order, "linear_backward_weight");
  size.rows = rows_of(x, size.inputs, "linear_backward_weight");
  DTRAIN_CHECK(rows_of(dy, size.outputs, "linear_backward_weight") == size.rows,
               "linear_backward_weight: {} and {}", to_string(x.shape()), to_string(dy.shape()));
  if (size.rows == 0) {
    if (!adds) std::ranges::fill(dw.values<float>(), 0.0f);
    return;
  }
  const Matrix from_x{x.data<float>(), false}, from_dy{dy.data<float>(), false};
  const Matrix x_t{x.data<float>(), true}, dy_t{dy.data<float>(), true};
  if (order == WeightOrder::out_in) {
    multiply_matrices(context, size.outputs, size.rows, size.inputs, dy_t, from_x,
                      {.to_output = adds}, dw.data<float>(), "linear_backward_weight");
  } else {
    multiply_matrices(context, size.inputs, size.rows, size.outputs, x_t, from_dy,
                      {.to_output = adds}, dw.data<float>(), "linear_backward_weight");
  }
}

void linear_backward_bias(OpContext& context, const Tensor& dy, const Tensor& db) {
  channel_sums(context, dy, db.values<float>());
}

}  // namespace dtrain::ops
