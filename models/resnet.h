// Residual networks (He et al. 2016) of depth 18, 34, 50, 101 and 152. Parameters have
// torchvision's names, shapes and order, so its weights load.
#pragma once

#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/nn/layers.h"
#include "dtrain/models/model_input.h"

namespace dtrain {

// relu(body(x) + shortcut(x)): what a residual network is made of. A basic block is two 3 x 3
// convolutions; a bottleneck is 1 x 1, 3 x 3 (which takes the stride), 1 x 1 to 4 * width channels.
// The shortcut is x, or a 1 x 1 convolution and batch norm where shapes differ.
class ResidualBlock final : public Module {
 public:
  struct Options {
    std::int64_t in = 0;     // channels of x
    std::int64_t width = 0;  // channels of the 3 x 3 convolutions
    int stride = 1;
    bool bottleneck = false;
    InitScheme last_norm = InitScheme::ones;  // of the last norm's weight
    bool sync_batch_norm = false;
  };
  explicit ResidualBlock(const Options& options);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  struct Layer {
    const Conv2d* conv;
    const BatchNorm* norm;
  };
  std::vector<Layer> body_;
  Layer shortcut_{nullptr, nullptr};  // null: x itself
};

// Stem: convolution, batch norm, ReLU, and for ImageNet a max pool. Then four groups of blocks,
// each of twice the channels and half the size of the one before, a mean over all pixels, and a
// linear layer.
class Resnet final : public Module {
 public:
  // input.shape: [H, W, C]; throws ConfigError where that is not so, or for another depth.
  Resnet(const config::Resnet& options, const ModelInput& input);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  const Conv2d* conv1_;
  const BatchNorm* bn1_;
  bool max_pool_;
  std::vector<const Sequential*> groups_;
  const Linear* fc_;
};

}  // namespace dtrain
