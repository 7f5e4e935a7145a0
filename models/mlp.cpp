#include "dtrain/models/mlp.h"

#include "dtrain/models/names.h"

namespace dtrain {

Mlp::Mlp(const config::Mlp& options, const ModelInput& input)
    : activation_(activation_named(options.activation())) {
  if (input.dtype != DType::f32) {
    throw ConfigError(
        fmt::format("model.name: mlp wants numbers, but the data's samples are tokens ({})",
                    to_string(input.dtype)));
  }
  const std::int64_t features = input.shape.elements();
  if (features != options.inputs()) {
    throw ConfigError(fmt::format(
        "model.inputs: {} does not fit the data, whose samples are {}: write model.inputs: {}",
        options.inputs(), to_string(input.shape), features));
  }
  const InitScheme init = init_named(options.init());
  std::int64_t width = features;
  const auto append = [&](std::int64_t next) {
    const std::string name = "fc" + std::to_string(layers_.size() + 1);
    layers_.push_back(&add<Linear>(name, width, next, options.bias(), init));
    width = next;
  };
  for (const std::int32_t hidden : options.hidden()) {
    append(hidden);
    dropouts_.push_back(&add<Dropout>("dropout" + std::to_string(layers_.size()),
                                      static_cast<float>(options.dropout())));
  }
  append(options.outputs());
}

Value Mlp::forward(Pass& pass, const Value& x) const {
  Value value = functions::flatten(pass, x);
  for (std::size_t i = 0; i < dropouts_.size(); ++i) {
    value = activation_(pass, layers_[i]->forward(pass, value));
    value = dropouts_[i]->forward(pass, value);
  }
  return layers_.back()->forward(pass, value);
}

}  // namespace dtrain
