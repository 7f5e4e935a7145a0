// The layers that models are built of. Names, shapes and defaults of parameters are PyTorch's.
#pragma once

#include <memory>
#include <vector>

#include "dtrain/core/nn/module.h"

namespace dtrain {

struct LinearOptions {
  bool bias = true;
  InitScheme init = InitScheme::uniform_fan_in;
  float deviation = 0.02F;  // of InitScheme::normal
  ops::WeightOrder order = ops::WeightOrder::out_in;
};

// y = x w^T + b. x: [..., in], y: [..., out].
class Linear final : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool bias = true,
         InitScheme init = InitScheme::uniform_fan_in);
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options);
  Value forward(Pass& pass, const Value& x) const override;
  // For functions that do more than this layer in one operation.
  functions::LinearWeights weights() const { return {weight_, bias_, order_}; }

 private:
  ops::WeightOrder order_;
  Parameter& weight_;
  Parameter* bias_;
};

// x: [N, H, W, in], y: [N, H', W', out]; weight [out, in / groups, kernel, kernel].
class Conv2d final : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, int kernel, ops::Conv2dOptions options = {},
         bool bias = true, InitScheme init = InitScheme::uniform_fan_in);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  ops::Conv2dOptions options_;
  Parameter& weight_;
  Parameter* bias_;
};

// Over all axes but the last: BatchNorm1d and 2d of PyTorch in one.
class BatchNorm final : public Module {
 public:
  struct Options {
    float epsilon = 1e-5F;
    float momentum = 0.1F;
    InitScheme weight_init = InitScheme::ones;
    bool synchronized = false;  // statistics of all virtual ranks' micro-batches (SyncBN)
  };
  explicit BatchNorm(std::int64_t channels) : BatchNorm(channels, Options{}) {}
  BatchNorm(std::int64_t channels, const Options& options);
  Value forward(Pass& pass, const Value& x) const override;
  // Followed by ReLU, in one operation.
  Value forward_relu(Pass& pass, const Value& x) const;
  // Followed by ReLU and max pooling over windows of 2 x 2, in one operation.
  Value forward_relu_max_pool(Pass& pass, const Value& x) const;
  // Followed by adding `residual` and ReLU, in one operation.
  Value forward_add_relu(Pass& pass, const Value& x, const Value& residual) const;

 private:
  float epsilon_;
  Parameter& weight_;
  Parameter& bias_;
  Buffer& running_mean_;
  Buffer& running_variance_;
  RunningStatistics& statistics_;
};

// Over each sample's groups of channels. Normalizes alike in training and evaluation.
class GroupNorm final : public Module {
 public:
  GroupNorm(int groups, std::int64_t channels, float epsilon = 1e-5F);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  int groups_;
  float epsilon_;
  Parameter& weight_;
  Parameter& bias_;
};

// Over the last axis, of `size`.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(std::int64_t size, float epsilon = 1e-5F);
  Value forward(Pass& pass, const Value& x) const override;
  functions::NormWeights weights() const { return {weight_, &bias_, epsilon_}; }

 private:
  float epsilon_;
  Parameter& weight_;
  Parameter& bias_;
};

// LayerNorm without mean and bias.
class RmsNorm final : public Module {
 public:
  explicit RmsNorm(std::int64_t size, float epsilon = 1e-5F);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  float epsilon_;
  Parameter& weight_;
};

// Rows of a table by number: x: [...] i32, y: [..., size].
class Embedding final : public Module {
 public:
  // Weights are normal, of this deviation.
  Embedding(std::int64_t count, std::int64_t size, float deviation = 1.0F);
  Value forward(Pass& pass, const Value& x) const override;
  const Parameter& weight() const { return weight_; }

 private:
  Parameter& weight_;
};

class Dropout final : public Module {
 public:
  explicit Dropout(float p);
  Value forward(Pass& pass, const Value& x) const override;
  float p() const { return p_; }
  const RandomSite& site() const { return site_; }

 private:
  float p_;
  RandomSite& site_;
};

// Modules one after the other, named "0", "1", ... or as given.
class Sequential final : public Module {
 public:
  template <typename Child, typename... Arguments>
  Child& append(const std::string& name, Arguments&&... arguments) {
    Child& child = add<Child>(name, std::forward<Arguments>(arguments)...);
    steps_.push_back(&child);
    return child;
  }
  Value forward(Pass& pass, const Value& x) const override;

 private:
  std::vector<const Module*> steps_;
};

}  // namespace dtrain
