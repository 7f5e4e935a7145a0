#include "dtrain/core/autograd/functions.h"
#include "dtrain/core/ops/group_norm.h"

namespace dtrain::functions {

Value group_norm(Pass& pass, const Value& x, const Parameter& weight, const Parameter& bias,
                 int groups, float epsilon) {
  const Tensor gamma = pass.weight(weight);
  const Tensor beta = pass.weight(bias);
  ops::GroupNormOutput out =
      ops::group_norm(pass.context(), x.tensor, gamma, beta, groups, epsilon);
  Tensor y = std::exchange(out.y, Tensor());  // the backward does not read it
  return pass.record(std::move(y), [kept = Kept(x), entry = x.entry, gamma, out, groups, epsilon,
                                    &weight, &bias](Pass& p, const Tensor& dy) {
    Tensor dx;
    p.parameter_gradient(weight, [&](const Tensor& dgamma) {
      p.parameter_gradient(bias, [&](const Tensor& dbeta) {
        dx = ops::group_norm_backward(p.context(), kept.get(p.context()), dy, gamma, out, groups,
                                      epsilon, dgamma, dbeta);
      });
    });
    p.add_gradient(entry, std::move(dx));
  });
}

}  // namespace dtrain::functions
