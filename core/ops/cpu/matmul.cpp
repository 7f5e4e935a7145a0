#include "dtrain/core/ops/matmul.h"

#include <algorithm>

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

// c: [m, n] = a b + bias, where a, as read, is [m, k] and b [k, n]. Measured: on one thread
// oneDNN's matmul on plain memory is never slower than its inner product, whose packed weights
// would have to be packed anew at each step.
void multiply_matrices(OpContext& context, std::int64_t m, std::int64_t k, std::int64_t n, Matrix a,
                       Matrix b, const float* bias, float* c, std::string_view who) {
  const PlanKey key{static_cast<std::int64_t>(Operation::matmul),
                    m,
                    k,
                    n,
                    a.transposed,
                    b.transposed,
                    bias != nullptr};
  const dnnl::engine& engine = context.library().engine;
  Plan& plan = context.library().plan(context, key, who, [&] {
    const Desc a_desc = matrix_desc(m, k, a.transposed);
    const Desc b_desc = matrix_desc(k, n, b.transposed);
    const Desc c_desc = matrix_desc(m, n, false);
    const Desc bias_desc = bias == nullptr ? Desc() : matrix_desc(1, n, false);
    const auto description =
        describe_matmul(engine, user_scratchpad(), a_desc, b_desc, bias_desc, c_desc);
    std::vector<Plan::Operand> inputs{{DNNL_ARG_SRC, a_desc, a_desc},
                                      {DNNL_ARG_WEIGHTS, b_desc, b_desc}};
    if (bias != nullptr) inputs.push_back({DNNL_ARG_BIAS, bias_desc, bias_desc});
    return Plan(engine, dnnl::matmul(description), inputs, {DNNL_ARG_DST, c_desc, c_desc},
                description.scratchpad_desc());
  });
  if (bias == nullptr) {
    plan.run(context, {a.data, b.data}, c);
  } else {
    plan.run(context, {a.data, b.data, bias}, c);
  }
}

void check_matrix(const Tensor& x, std::int64_t rows, std::int64_t columns, std::string_view who) {
  DTRAIN_CHECK(x.shape() == (Shape{rows, columns}) && x.layout() == Layout{},
               "{}: {} in channel blocks of {}, expected plain [{}, {}]", who, to_string(x.shape()),
               x.layout().channel_block, rows, columns);
}

void check_rank(const Tensor& x, std::string_view who) {
  DTRAIN_CHECK(x.shape().rank() == 2, "{}: a matrix of shape {}", who, to_string(x.shape()));
}

}  // namespace

Tensor linear(OpContext& context, const Tensor& x, const Tensor& w, const Tensor& bias) {
  check_rank(x, "linear");
  check_rank(w, "linear");
  const std::int64_t n = x.shape()[0];
  const std::int64_t k = x.shape()[1];
  const std::int64_t m = w.shape()[0];
  check_matrix(x, n, k, "linear");
  check_matrix(w, m, k, "linear");
  const bool has_bias = bias.raw() != nullptr;
  DTRAIN_CHECK(!has_bias || bias.shape() == Shape{m}, "linear: bias {} for {} outputs",
               to_string(bias.shape()), m);
  const Tensor y = Tensor::empty({n, m}, DType::f32, context.allocator(), "linear output");
  if (n == 0) return y;
  multiply_matrices(context, n, k, m, {x.data<float>(), false}, {w.data<float>(), true},
                    has_bias ? bias.data<float>() : nullptr, y.data<float>(), "linear");
  return y;
}

Tensor linear_backward_input(OpContext& context, const Tensor& dy, const Tensor& w) {
  check_rank(dy, "linear_backward_input");
  check_rank(w, "linear_backward_input");
  const std::int64_t n = dy.shape()[0];
  const std::int64_t m = w.shape()[0];
  const std::int64_t k = w.shape()[1];
  check_matrix(dy, n, m, "linear_backward_input");
  const Tensor dx = Tensor::empty({n, k}, DType::f32, context.allocator(), "linear input gradient");
  if (n == 0) return dx;
  multiply_matrices(context, n, m, k, {dy.data<float>(), false}, {w.data<float>(), false}, nullptr,
                    dx.data<float>(), "linear_backward_input");
  return dx;
}

void linear_backward_weight(OpContext& context, const Tensor& x, const Tensor& dy,
                            const Tensor& dw) {
  check_rank(x, "linear_backward_weight");
  check_rank(dy, "linear_backward_weight");
  const std::int64_t n = x.shape()[0];
  const std::int64_t k = x.shape()[1];
  const std::int64_t m = dy.shape()[1];
  check_matrix(dy, n, m, "linear_backward_weight");
  check_matrix(dw, m, k, "linear_backward_weight");
  if (n == 0) {
    std::ranges::fill(dw.values<float>(), 0.0f);
    return;
  }
  multiply_matrices(context, m, n, k, {dy.data<float>(), true}, {x.data<float>(), false}, nullptr,
                    dw.data<float>(), "linear_backward_weight");
}

void linear_backward_bias(OpContext& context, const Tensor& dy, const Tensor& db) {
  check_rank(dy, "linear_backward_bias");
  channel_sums(context, dy, db.values<float>());
}

}  // namespace dtrain::ops
