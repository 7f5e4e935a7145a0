#include "dtrain/models/convnet.h"

#include <algorithm>
#include <bit>

#include "dtrain/core/base/text.h"

namespace dtrain {

Convnet::Convnet(const config::Convnet& options, const ModelInput& input) {
  if (input.shape.rank() != 3 || input.dtype != DType::f32) {
    throw ConfigError(
        fmt::format("model.name: convnet wants images [height, width, channels], but the data's "
                    "samples are {}: use {}image data",
                    input.dtype == DType::f32 ? to_string(input.shape) : "tokens",
                    input.dtype == DType::f32 ? "model mlp, or " : ""));
  }
  std::int64_t height = input.shape[0], width = input.shape[1], channels = input.shape[2];
  for (const std::int32_t next : options.channels()) {
    const std::string number = std::to_string(stages_.size() + 1);
    // Batch norm subtracts the mean: a bias before it would have no effect.
    const bool norm = options.batch_norm();
    Stage stage{
        &add<Conv2d>("conv" + number, channels, next, 3, ops::Conv2dOptions{.padding = 1}, !norm),
        norm ? &add<BatchNorm>("bn" + number, next) : nullptr};
    stages_.push_back(stage);
    channels = next;
    height /= 2;
    width /= 2;
  }
  if (height == 0 || width == 0) {
    const auto shorter = static_cast<std::uint64_t>(std::min(input.shape[0], input.shape[1]));
    const int most = std::bit_width(shorter) - 1;
    throw ConfigError(
        fmt::format("model.channels: {} of 2 x 2 pooling leave nothing of an image of {} x {}: {}",
                    counted(options.channels_size(), "stage"), input.shape[0], input.shape[1],
                    most > 0 ? fmt::format("use at most {} entries", most)
                             : "use model mlp, or images of at least 2 x 2"));
  }
  fc1_ = &add<Linear>("fc1", height * width * channels, options.hidden());
  dropout_ = &add<Dropout>("dropout", static_cast<float>(options.dropout()));
  fc2_ = &add<Linear>("fc2", options.hidden(), options.classes());
}

Value Convnet::forward(Pass& pass, const Value& x) const {
  Value value = x;
  for (const Stage& stage : stages_) {
    value = stage.conv->forward(pass, value);
    if (stage.norm != nullptr) {
      value = stage.norm->forward_relu_max_pool(pass, value);
    } else {
      value = functions::max_pool2d(pass, functions::relu(pass, value), {.kernel = 2, .stride = 2});
    }
  }
  value = functions::relu(pass, fc1_->forward(pass, functions::flatten(pass, value)));
  return fc2_->forward(pass, dropout_->forward(pass, value));
}

}  // namespace dtrain
