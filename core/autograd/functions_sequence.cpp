// The functions of transformers.
#include <utility>
#include <vector>

#include "dtrain/core/autograd/functions.h"
#include "dtrain/core/ops/activation.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/core/ops/embedding.h"
#include "dtrain/core/ops/layer_norm.h"
#include "dtrain/core/ops/shape_ops.h"

namespace dtrain::functions {

namespace {

Tensor optional_weight(Pass& pass, const Parameter* parameter) {
  return parameter != nullptr ? pass.weight(*parameter) : Tensor();
}

// Both gradients of a norm come from one sweep, so both destinations are taken at once.
template <typename Backward>
void norm_gradients(Pass& pass, const Parameter& weight, const Parameter* bias,
                    const Backward& backward) {
  pass.parameter_gradient_in_place(weight, [&](const Tensor& dgamma, bool add_gamma) {
    if (bias == nullptr) {
      backward(ops::RowNormGradients{.gamma = dgamma, .beta = {}, .add_gamma = add_gamma});
      return;
    }
    pass.parameter_gradient_in_place(*bias, [&](const Tensor& dbeta, bool add_beta) {
      backward(ops::RowNormGradients{
          .gamma = dgamma, .beta = dbeta, .add_gamma = add_gamma, .add_beta = add_beta});
    });
  });
}

// The gradient of a linear layer's parameters.
void linear_parameter_gradients(Pass& pass, const Tensor& x, const Tensor& dy,
                                const Parameter& weight, const Parameter* bias,
                                ops::WeightOrder order) {
  if (bias != nullptr) {
    pass.parameter_gradient(
        *bias, [&](const Tensor& db) { ops::linear_backward_bias(pass.context(), dy, db); });
  }
  pass.parameter_gradient_in_place(weight, [&](const Tensor& dw, bool adds) {
    ops::linear_backward_weight(pass.context(), x, dy, dw, order, adds);
  });
}

// Gradient of a layer norm's parameters, and of its input x, which may have got some before.
void layer_norm_gradients(Pass& pass, const Value& x, const Tensor& dy, const NormWeights& norm,
                          const Tensor& gamma, const ops::RowStatistics& statistics) {
  norm_gradients(pass, norm.weight, norm.bias, [&](const ops::RowNormGradients& gradients) {
    pass.add_gradient(x.entry,
                      ops::layer_norm_backward(pass.context(), x.tensor, dy, gamma, statistics,
                                               gradients, pass.take_gradient(x.entry)));
  });
}

}  // namespace

Value layer_norm(Pass& pass, const Value& x, const NormWeights& norm) {
  const Tensor gamma = pass.weight(norm.weight);
  const Tensor beta = optional_weight(pass, norm.bias);
  const ops::RowNormOutput out =
      ops::layer_norm(pass.context(), x.tensor, gamma, beta, norm.epsilon);
  return pass.record(out.y,
                     [x, gamma, norm, statistics = out.statistics](Pass& p, const Tensor& dy) {
                       layer_norm_gradients(p, x, dy, norm, gamma, statistics);
                     });
}

Value rms_norm(Pass& pass, const Value& x, const Parameter& weight, float epsilon) {
  const Tensor gamma = pass.weight(weight);
  const ops::RowNormOutput out = ops::rms_norm(pass.context(), x.tensor, gamma, epsilon);
  return pass.record(out.y, [x, gamma, &weight, statistics = out.statistics](Pass& p,
                                                                             const Tensor& dy) {
    norm_gradients(p, weight, nullptr, [&](const ops::RowNormGradients& gradients) {
      p.add_gradient(x.entry, ops::rms_norm_backward(p.context(), x.tensor, dy, gamma, statistics,
                                                     gradients, p.take_gradient(x.entry)));
    });
  });
}

Value gelu_tanh(Pass& pass, const Value& x) {
  Tensor y = ops::gelu_tanh(pass.context(), x.tensor);
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(std::move(y), [x](Pass& p, const Tensor& dy) {
    p.add_gradient(x.entry, ops::gelu_tanh_backward(p.context(), x.tensor, dy));
  });
}

Value silu(Pass& pass, const Value& x) {
  Tensor y = ops::silu(pass.context(), x.tensor);
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(std::move(y), [x](Pass& p, const Tensor& dy) {
    p.add_gradient(x.entry, ops::silu_backward(p.context(), x.tensor, dy));
  });
}

Value embedding(Pass& pass, const Value& tokens, const Parameter& table,
                const Parameter* positions) {
  const Tensor w = pass.weight(table);
  const Tensor of_positions = optional_weight(pass, positions);
  return pass.record(ops::embedding(pass.context(), tokens.tensor, w, of_positions),
                     [tokens, &table, positions](Pass& p, const Tensor& dy) {
                       if (positions != nullptr) {
                         p.parameter_gradient_in_place(
                             *positions, [&](const Tensor& sums, bool adds) {
                               ops::embedding_backward_positions(p.context(), dy, sums, adds);
                             });
                       }
                       p.parameter_gradient_in_place(table, [&](const Tensor& sums, bool adds) {
                         ops::embedding_backward(p.context(), tokens.tensor, dy, sums, adds);
                       });
                     });
}

Value attention(Pass& pass, const Value& qkv, ops::AttentionOptions options, float p,
                const RandomSite& site) {
  if (pass.training() && p > 0) {
    options.dropout = p;
    options.key = pass.random_key(site);
    options.positions = pass.positions();
  }
  const ops::AttentionOutput out = ops::attention(pass.context(), qkv.tensor, options);
  if (!qkv.needs_gradient()) return pass.input(out.y);
  return pass.record(out.y, [qkv, out, options](Pass& pass_, const Tensor& dy) {
    pass_.add_gradient(qkv.entry,
                       ops::attention_backward(pass_.context(), qkv.tensor, out, dy, options));
  });
}

Value attention(Pass& pass, const Value& q, const Value& k, const Value& v,
                const ops::AttentionOptions& options) {
  const ops::AttentionOutput out =
      ops::attention(pass.context(), q.tensor, k.tensor, v.tensor, options);
  if (!q.needs_gradient() && !k.needs_gradient() && !v.needs_gradient()) return pass.input(out.y);
  return pass.record(out.y, [q, k, v, out, options](Pass& p, const Tensor& dy) {
    ops::AttentionGradients gradients =
        ops::attention_backward(p.context(), q.tensor, k.tensor, v.tensor, out, dy, options);
    p.add_gradient(q.entry, std::move(gradients.dq));
    p.add_gradient(k.entry, std::move(gradients.dk));
    p.add_gradient(v.entry, std::move(gradients.dv));
  });
}

Value transpose(Pass& pass, const Value& x, int a, int b) {
  Tensor y = ops::transpose(pass.context(), x.tensor, a, b);
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(std::move(y), [entry = x.entry, a, b](Pass& p, const Tensor& dy) {
    p.add_gradient(entry, ops::transpose(p.context(), dy, a, b));
  });
}

Value concat(Pass& pass, std::span<const Value> parts, int axis) {
  std::vector<Tensor> tensors;
  bool needs_gradient = false;
  for (const Value& part : parts) {
    tensors.push_back(part.tensor);
    needs_gradient = needs_gradient || part.needs_gradient();
  }
  Tensor y = ops::concat(pass.context(), tensors, axis);
  if (!needs_gradient) return pass.input(std::move(y));
  struct Part {
    int entry;
    std::int64_t size;
  };
  std::vector<Part> list;
  for (const Value& part : parts) list.push_back({part.entry, part.shape()[axis]});
  return pass.record(std::move(y), [list = std::move(list), axis](Pass& p, const Tensor& dy) {
    std::int64_t first = 0;
    for (const Part& part : list) {
      if (part.entry >= 0) {
        p.add_gradient(part.entry, ops::slice(p.context(), dy, axis, first, first + part.size));
      }
      first += part.size;
    }
  });
}

Value slice(Pass& pass, const Value& x, int axis, std::int64_t first, std::int64_t last) {
  Tensor y = ops::slice(pass.context(), x.tensor, axis, first, last);
  if (!x.needs_gradient()) return pass.input(std::move(y));
  return pass.record(
      std::move(y), [entry = x.entry, shape = x.shape(), axis, first](Pass& p, const Tensor& dy) {
        p.add_gradient(entry, ops::slice_backward(p.context(), dy, shape, axis, first));
      });
}

Value layer_norm_linear(Pass& pass, const Value& x, const NormWeights& norm,
                        const LinearWeights& linear) {
  const Tensor gamma = pass.weight(norm.weight);
  const Tensor beta = optional_weight(pass, norm.bias);
  const Tensor w = pass.weight(linear.weight);
  const Tensor b = optional_weight(pass, linear.bias);
  const ops::RowNormOutput normed =
      ops::layer_norm(pass.context(), x.tensor, gamma, beta, norm.epsilon);
  return pass.record(
      ops::linear(pass.context(), normed.y, w, b, linear.order),
      [x, gamma, beta, w, norm, linear, statistics = normed.statistics](Pass& p, const Tensor& dy) {
        {
          const Tensor again =
              ops::layer_norm_again(p.context(), x.tensor, gamma, beta, statistics);
          linear_parameter_gradients(p, again, dy, linear.weight, linear.bias, linear.order);
        }
        layer_norm_gradients(p, x, ops::linear_backward_input(p.context(), dy, w, linear.order),
                             norm, gamma, statistics);
      });
}

Value linear_residual(Pass& pass, const Value& x, const LinearWeights& linear,
                      const Value& residual) {
  const Tensor w = pass.weight(linear.weight);
  const Tensor b = optional_weight(pass, linear.bias);
  return pass.record(
      ops::linear(pass.context(), x.tensor, w, b, linear.order, residual.tensor),
      [x, w, linear, entry = residual.entry](Pass& p, const Tensor& dy) {
        linear_parameter_gradients(p, x.tensor, dy, linear.weight, linear.bias, linear.order);
        if (x.needs_gradient()) {
          p.add_gradient(x.entry, ops::linear_backward_input(p.context(), dy, w, linear.order));
        }
        p.add_gradient(entry, dy);
      });
}

Value gelu_tanh_linear_residual(Pass& pass, const Value& x, const LinearWeights& linear,
                                const Value& residual) {
  const Tensor w = pass.weight(linear.weight);
  const Tensor b = optional_weight(pass, linear.bias);
  return pass.record(
      ops::linear(pass.context(), ops::gelu_tanh(pass.context(), x.tensor), w, b, linear.order,
                  residual.tensor),
      [x, w, linear, entry = residual.entry](Pass& p, const Tensor& dy) {
        const Tensor again =
            Tensor::empty(x.shape(), DType::f32, p.context().allocator(), "gelu again");
        p.add_gradient(x.entry,
                       ops::gelu_tanh_backward(
                           p.context(), x.tensor,
                           ops::linear_backward_input(p.context(), dy, w, linear.order), again));
        linear_parameter_gradients(p, again, dy, linear.weight, linear.bias, linear.order);
        p.add_gradient(entry, dy);
      });
}

}  // namespace dtrain::functions
