// A model: a linear layer, blocks x + W2 relu(W1 x), and a linear layer to the classes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/core/nn/layers.h"
#include "dtrain/models/model_input.h"

class ResidualMlp : public dtrain::Module {
 public:
  ResidualMlp(const dtrain::ModelInput& input, std::int64_t width, std::int64_t blocks)
      : first_(add<dtrain::Linear>("first", input.shape.elements(), width)) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::string name = "blocks." + std::to_string(i);
      blocks_.push_back({&add<dtrain::Linear>(name + ".inner", width, width),
                         &add<dtrain::Linear>(name + ".outer", width, width)});
    }
    last_ = &add<dtrain::Linear>("last", width, input.classes);
  }

  // x: [N, ...], of any shape. Logits: [N, classes].
  dtrain::Value forward(dtrain::Pass& pass, const dtrain::Value& x) const override {
    namespace F = dtrain::functions;
    dtrain::Value value = first_.forward(pass, F::flatten(pass, x));
    for (const Block& block : blocks_) {
      const dtrain::Value inner = F::relu(pass, block.inner->forward(pass, value));
      value = F::add(pass, value, block.outer->forward(pass, inner));
    }
    return last_->forward(pass, F::relu(pass, value));
  }

 private:
  struct Block {
    const dtrain::Linear* inner;
    const dtrain::Linear* outer;
  };
  const dtrain::Linear& first_;
  std::vector<Block> blocks_;
  const dtrain::Linear* last_;
};
