#include "dtrain/core/nn/layers.h"

namespace dtrain {

namespace {

// Zero weights mean a zero layer: its bias follows; normal ones are GPT-2's, whose biases are zero.
// Every other scheme leaves the bias PyTorch's.
InitScheme bias_scheme(InitScheme init) {
  return init == InitScheme::zeros || init == InitScheme::normal ? InitScheme::zeros
                                                                 : InitScheme::uniform_fan_in;
}

Shape weight_shape(std::int64_t in, std::int64_t out, ops::WeightOrder order) {
  return order == ops::WeightOrder::out_in ? Shape{out, in} : Shape{in, out};
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool bias, InitScheme init)
    : Linear(in, out, LinearOptions{.bias = bias, .init = init}) {}

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : order_(options.order),
      weight_(add_parameter("weight", weight_shape(in, out, options.order), options.init, in)),
      bias_(options.bias ? &add_parameter("bias", {out}, bias_scheme(options.init), in, true)
                         : nullptr) {
  weight_.deviation = options.deviation;
}

Value Linear::forward(Pass& pass, const Value& x) const {
  return functions::linear(pass, x, weight_, bias_, order_);
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, int kernel, ops::Conv2dOptions options, bool bias,
               InitScheme init)
    : options_(options),
      weight_(add_parameter("weight", {out, in / options.groups, kernel, kernel}, init,
                            in / options.groups * kernel * kernel)),
      bias_(bias ? &add_parameter("bias", {out}, bias_scheme(init),
                                  in / options.groups * kernel * kernel, true)
                 : nullptr) {
  DTRAIN_CHECK(in % options.groups == 0 && out % options.groups == 0,
               "{} input and {} output channels in {} groups", in, out, options.groups);
}

Value Conv2d::forward(Pass& pass, const Value& x) const {
  return functions::conv2d(pass, x, weight_, bias_, options_);
}

BatchNorm::BatchNorm(std::int64_t channels, const Options& options)
    : epsilon_(options.epsilon),
      weight_(add_parameter("weight", {channels}, options.weight_init, 0, true)),
      bias_(add_parameter("bias", {channels}, InitScheme::zeros, 0, true)),
      running_mean_(add_buffer("running_mean", {channels}, 0)),
      running_variance_(add_buffer("running_var", {channels}, 1)),
      statistics_(add_running_statistics(running_mean_, running_variance_, options.momentum)) {
  statistics_.synchronized = options.synchronized;
}

Value BatchNorm::forward(Pass& pass, const Value& x) const {
  return functions::batch_norm(pass, x, weight_, bias_, statistics_, epsilon_);
}

Value BatchNorm::forward_relu(Pass& pass, const Value& x) const {
  return functions::batch_norm_relu(pass, x, weight_, bias_, statistics_, epsilon_);
}

Value BatchNorm::forward_relu_max_pool(Pass& pass, const Value& x) const {
  return functions::batch_norm_relu_max_pool(pass, x, weight_, bias_, statistics_, epsilon_);
}

Value BatchNorm::forward_add_relu(Pass& pass, const Value& x, const Value& residual) const {
  return functions::batch_norm_add_relu(pass, x, residual, weight_, bias_, statistics_, epsilon_);
}

GroupNorm::GroupNorm(int groups, std::int64_t channels, float epsilon)
    : groups_(groups),
      epsilon_(epsilon),
      weight_(add_parameter("weight", {channels}, InitScheme::ones, 0, true)),
      bias_(add_parameter("bias", {channels}, InitScheme::zeros, 0, true)) {
  DTRAIN_CHECK(groups > 0 && channels % groups == 0, "{} channels in {} groups", channels, groups);
}

Value GroupNorm::forward(Pass& pass, const Value& x) const {
  return functions::group_norm(pass, x, weight_, bias_, groups_, epsilon_);
}

LayerNorm::LayerNorm(std::int64_t size, float epsilon)
    : epsilon_(epsilon),
      weight_(add_parameter("weight", {size}, InitScheme::ones, 0, true)),
      bias_(add_parameter("bias", {size}, InitScheme::zeros, 0, true)) {}

Value LayerNorm::forward(Pass& pass, const Value& x) const {
  return functions::layer_norm(pass, x, weights());
}

RmsNorm::RmsNorm(std::int64_t size, float epsilon)
    : epsilon_(epsilon), weight_(add_parameter("weight", {size}, InitScheme::ones, 0, true)) {}

Value RmsNorm::forward(Pass& pass, const Value& x) const {
  return functions::rms_norm(pass, x, weight_, epsilon_);
}

Embedding::Embedding(std::int64_t count, std::int64_t size, float deviation)
    : weight_(add_parameter("weight", {count, size}, InitScheme::normal, 0)) {
  weight_.deviation = deviation;
}

Value Embedding::forward(Pass& pass, const Value& x) const {
  return functions::embedding(pass, x, weight_);
}

Dropout::Dropout(float p) : p_(p), site_(add_random_site()) {}

Value Dropout::forward(Pass& pass, const Value& x) const {
  return functions::dropout(pass, x, p_, site_);
}

Value Sequential::forward(Pass& pass, const Value& x) const {
  Value value = x;
  for (const Module* step : steps_) value = step->forward(pass, value);
  return value;
}

}  // namespace dtrain
