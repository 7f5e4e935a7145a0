// A multi-layer perceptron; without hidden layers, a linear model.
#pragma once

#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/nn/layers.h"
#include "dtrain/models/model_input.h"

namespace dtrain {

// Linear, activation, dropout per entry of `hidden`; then the output layer. x: [N, ...] is
// flattened to [N, inputs]. Layers are named fc1, fc2, ...
class Mlp final : public Module {
 public:
  // Throws ConfigError if a sample of `input` has another number of features than options.inputs.
  Mlp(const config::Mlp& options, const ModelInput& input);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  using Activation = Value (*)(Pass&, const Value&);

  Activation activation_;
  std::vector<const Linear*> layers_;
  std::vector<const Dropout*> dropouts_;  // one behind each hidden layer
};

}  // namespace dtrain
