// A small convolutional network in the manner of LeNet, with batch norm and dropout options.
#pragma once

#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/nn/layers.h"
#include "dtrain/models/model_input.h"

namespace dtrain {

// Per entry of `channels`: 3 x 3 convolution (padding 1), batch norm, ReLU, 2 x 2 max pool. Then
// flattened in H, W, C order: linear, ReLU, dropout, linear.
class Convnet final : public Module {
 public:
  // input.shape: [H, W, C]; throws ConfigError where that is not so or the image is too small.
  Convnet(const config::Convnet& options, const ModelInput& input);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  struct Stage {
    const Conv2d* conv;
    const BatchNorm* norm;  // null without batch norm
  };
  std::vector<Stage> stages_;
  const Linear* fc1_;
  const Dropout* dropout_;
  const Linear* fc2_;
};

}  // namespace dtrain
