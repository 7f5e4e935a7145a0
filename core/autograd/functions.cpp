#include "dtrain/core/autograd/functions.h"

#include <utility>

#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/dropout.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/matmul.h"

namespace dtrain::functions {

Value linear(Pass& pass, const Value& x, const Parameter& weight, const Parameter* bias,
             ops::WeightOrder order) {
  const Tensor w = pass.weight(weight);
  const Tensor b = bias != nullptr ? pass.weight(*bias) : Tensor();
  return pass.record(
      ops::linear(pass.context(), x.tensor, w, b, order),
      [x, w, &weight, bias, order](Pass& p, const Tensor& dy) {
        if (bias != nullptr) {
          p.parameter_gradient(
              *bias, [&](const Tensor& db) { ops::linear_backward_bias(p.context(), dy, db); });
        }
        p.parameter_gradient_in_place(weight, [&](const Tensor& dw, bool adds) {
          ops::linear_backward_weight(p.context(), x.tensor, dy, dw, order, adds);
        });
        if (x.needs_gradient()) {
          p.add_gradient(x.entry, ops::linear_backward_input(p.context(), dy, w, order));
        }
      });
}

Value conv2d(Pass& pass, const Value& x, const Parameter& weight, const Parameter* bias,
             const ops::Conv2dOptions& options) {
  const Tensor w = pass.weight(weight);
  const Tensor b = bias != nullptr ? pass.weight(*bias) : Tensor();
  return pass.record(
      ops::conv2d(pass.context(), x.tensor, w, b, options),
      [kept = Kept(x), entry = x.entry, shape = x.shape(), layout = x.tensor.layout(), w, &weight,
       bias, options](Pass& p, const Tensor& dy) {
        if (bias != nullptr) {
          p.parameter_gradient(
              *bias, [&](const Tensor& db) { ops::conv2d_backward_bias(p.context(), dy, db); });
        }
        p.parameter_gradient_in_place(weight, [&](const Tensor& dw, bool add) {
          ops::conv2d_backward_weight(p.context(), kept.get(p.context()), dy, dw, options, add);
        });
        if (entry >= 0) {
          p.add_gradient(entry,
                         ops::conv2d_backward_input(p.context(), dy, w, shape, layout, options));
        }
      });
}

namespace {

// Note [No gradient]: an operation without parameters, none of whose inputs needs a gradient, is
// not put on the tape. What stands behind it then does not compute gradients that nobody reads: the
// first layer of a model behind flatten(input) is spared the largest of its products.

// An elementwise function whose backward needs its input or its output, and the output's gradient.
template <typename Forward, typename Backward>
Value unary(Pass& pass, const Value& x, bool backward_reads_output, Forward forward,
            Backward backward) {
  const Tensor y = forward(pass.context(), x.tensor);
  if (!x.needs_gradient()) return pass.input(y);
  return pass.record(y, [entry = x.entry, kept = backward_reads_output ? y : x.tensor, backward](
                            Pass& p, const Tensor& dy) {
    p.add_gradient(entry, backward(p.context(), kept, dy));
  });
}

}  // namespace

Value relu(Pass& pass, const Value& x) {
  return unary(pass, x, true, ops::relu, ops::relu_backward);
}
Value gelu(Pass& pass, const Value& x) {
  return unary(pass, x, false, ops::gelu, ops::gelu_backward);
}
Value sigmoid(Pass& pass, const Value& x) {
  return unary(pass, x, true, ops::sigmoid, ops::sigmoid_backward);
}
Value tanh(Pass& pass, const Value& x) {
  return unary(pass, x, true, ops::tanh, ops::tanh_backward);
}
Value softmax(Pass& pass, const Value& x) {
  return unary(pass, x, true, ops::softmax, ops::softmax_backward);
}

Value max_pool2d(Pass& pass, const Value& x, const ops::Pool2dOptions& options) {
  const ops::MaxPoolOutput out = ops::max_pool2d(pass.context(), x.tensor, options);
  if (!x.needs_gradient()) return pass.input(out.y);
  return pass.record(out.y, [entry = x.entry, shape = x.shape(), index = out.index, options](
                                Pass& p, const Tensor& dy) {
    p.add_gradient(entry, ops::max_pool2d_backward(p.context(), dy, index, shape, options));
  });
}

Value avg_pool2d(Pass& pass, const Value& x, const ops::Pool2dOptions& options) {
  Tensor y = ops::avg_pool2d(pass.context(), x.tensor, options);
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(
      std::move(y), [entry = x.entry, shape = x.shape(), options](Pass& p, const Tensor& dy) {
        p.add_gradient(entry, ops::avg_pool2d_backward(p.context(), dy, shape, options));
      });
}

Value adaptive_avg_pool2d(Pass& pass, const Value& x, int out_h, int out_w) {
  Tensor y = ops::adaptive_avg_pool2d(pass.context(), x.tensor, out_h, out_w);
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(std::move(y), [entry = x.entry, shape = x.shape()](Pass& p, const Tensor& dy) {
    p.add_gradient(entry, ops::adaptive_avg_pool2d_backward(p.context(), dy, shape));
  });
}

Value dropout(Pass& pass, const Value& x, float p, const RandomSite& site) {
  if (!pass.training() || p == 0) return x;
  const RandomKey key = pass.random_key(site);
  Tensor y = ops::dropout(pass.context(), x.tensor, p, key, pass.positions());
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(std::move(y), [entry = x.entry, p, key](Pass& pass_, const Tensor& dy) {
    pass_.add_gradient(entry, ops::dropout(pass_.context(), dy, p, key, pass_.positions()));
  });
}

Value reshape(Pass& pass, const Value& x, const Shape& shape) {
  const Tensor plain = ops::to_layout(pass.context(), x.tensor, Layout{});
  if (!x.needs_gradient()) return pass.input(plain.reshape(shape));
  return pass.record(plain.reshape(shape),
                     [entry = x.entry, before = x.shape()](Pass& p, const Tensor& dy) {
                       p.add_gradient(entry, dy.reshape(before));
                     });
}

Value flatten(Pass& pass, const Value& x) {
  return reshape(pass, x, {x.shape()[0], x.shape().elements_per_row()});
}

Value add(Pass& pass, const Value& a, const Value& b) {
  Tensor sum = ops::add(pass.context(), a.tensor, b.tensor);
  if (!a.needs_gradient() && !b.needs_gradient()) return pass.input(std::move(sum));
  return pass.record(std::move(sum), [a_entry = a.entry, b_entry = b.entry, a_shape = a.shape(),
                                      b_shape = b.shape()](Pass& p, const Tensor& dy) {
    if (a_entry >= 0) p.add_gradient(a_entry, ops::sum_to_shape(p.context(), dy, a_shape));
    if (b_entry >= 0) p.add_gradient(b_entry, ops::sum_to_shape(p.context(), dy, b_shape));
  });
}

Value multiply(Pass& pass, const Value& a, const Value& b) {
  Tensor product = ops::multiply(pass.context(), a.tensor, b.tensor);
  if (!a.needs_gradient() && !b.needs_gradient()) return pass.input(std::move(product));
  return pass.record(std::move(product), [a, b](Pass& p, const Tensor& dy) {
    const auto give = [&](const Value& to, const Value& other) {
      if (!to.needs_gradient()) return;
      const Tensor part = ops::multiply(p.context(), dy, other.tensor);
      p.add_gradient(to.entry, ops::sum_to_shape(p.context(), part, to.shape()));
    };
    give(a, b);
    give(b, a);
  });
}

}  // namespace dtrain::functions
