#include "dtrain/models/resnet.h"

#include <array>
#include <string>

namespace dtrain {

namespace {

struct Depth {
  int layers;
  bool bottleneck;
  std::array<int, 4> blocks;  // of each group
};

constexpr std::array<Depth, 5> depths{{{18, false, {2, 2, 2, 2}},
                                       {34, false, {3, 4, 6, 3}},
                                       {50, true, {3, 4, 6, 3}},
                                       {101, true, {3, 4, 23, 3}},
                                       {152, true, {3, 8, 36, 3}}}};

const Depth& depth_of(int layers) {
  for (const Depth& depth : depths) {
    if (depth.layers == layers) return depth;
  }
  throw ConfigError(fmt::format("model.depth: {} is not one of 18, 34, 50, 101, 152", layers));
}

// Batch norm subtracts the mean: a bias before it would have no effect.
constexpr bool no_bias = false;

// As torchvision: keeps the size of gradients, of which a convolution's outputs have one each.
constexpr InitScheme conv_init = InitScheme::kaiming_normal_fan_out;

}  // namespace

ResidualBlock::ResidualBlock(const Options& options) {
  const std::int64_t out = options.bottleneck ? 4 * options.width : options.width;
  std::int64_t channels = options.in;
  const auto append = [&](std::int64_t next, int kernel, int stride, bool last) {
    const std::string number = std::to_string(body_.size() + 1);
    const ops::Conv2dOptions convolution{.stride = stride, .padding = kernel / 2};
    const auto& conv =
        add<Conv2d>("conv" + number, channels, next, kernel, convolution, no_bias, conv_init);
    const auto& norm = add<BatchNorm>(
        "bn" + number, next,
        BatchNorm::Options{.weight_init = last ? options.last_norm : InitScheme::ones,
                           .synchronized = options.sync_batch_norm});
    body_.push_back({&conv, &norm});
    channels = next;
  };
  if (options.bottleneck) {
    append(options.width, 1, 1, false);
    append(options.width, 3, options.stride, false);
    append(out, 1, 1, true);
  } else {
    append(options.width, 3, options.stride, false);
    append(out, 3, 1, true);
  }
  if (options.stride != 1 || options.in != out) {
    auto& shortcut = add<Sequential>("downsample");
    shortcut_.conv = &shortcut.append<Conv2d>(
        "0", options.in, out, 1, ops::Conv2dOptions{.stride = options.stride}, no_bias, conv_init);
    shortcut_.norm = &shortcut.append<BatchNorm>(
        "1", out, BatchNorm::Options{.synchronized = options.sync_batch_norm});
  }
}

Value ResidualBlock::forward(Pass& pass, const Value& x) const {
  Value shortcut = x;
  if (shortcut_.conv != nullptr) {
    shortcut = shortcut_.norm->forward(pass, shortcut_.conv->forward(pass, x));
  }
  Value value = x;
  for (std::size_t i = 0; i + 1 < body_.size(); ++i) {
    value = body_[i].norm->forward_relu(pass, body_[i].conv->forward(pass, value));
  }
  const Layer& last = body_.back();
  return last.norm->forward_add_relu(pass, last.conv->forward(pass, value), shortcut);
}

Resnet::Resnet(const config::Resnet& options, const ModelInput& input) {
  if (input.shape.rank() != 3 || input.dtype != DType::f32) {
    throw ConfigError(
        fmt::format("model.name: resnet wants images [height, width, channels], but the data's "
                    "samples are {}: use model mlp, or image data",
                    to_string(input.shape)));
  }
  const Depth& depth = depth_of(options.depth());
  const bool imagenet = options.stem() == "imagenet";
  max_pool_ = imagenet;
  std::int64_t width = 64;
  const ops::Conv2dOptions stem{.stride = imagenet ? 2 : 1, .padding = imagenet ? 3 : 1};
  conv1_ = &add<Conv2d>("conv1", input.shape[2], width, imagenet ? 7 : 3, stem, no_bias, conv_init);
  bn1_ =
      &add<BatchNorm>("bn1", width, BatchNorm::Options{.synchronized = options.sync_batch_norm()});
  std::int64_t channels = width;
  for (std::size_t group = 0; group < depth.blocks.size(); ++group) {
    auto& blocks = add<Sequential>("layer" + std::to_string(group + 1));
    for (int block = 0; block < depth.blocks[group]; ++block) {
      blocks.append<ResidualBlock>(
          std::to_string(block),
          ResidualBlock::Options{
              .in = channels,
              .width = width,
              .stride = group > 0 && block == 0 ? 2 : 1,
              .bottleneck = depth.bottleneck,
              .last_norm = options.zero_init_last_norm() ? InitScheme::zeros : InitScheme::ones,
              .sync_batch_norm = options.sync_batch_norm()});
      channels = depth.bottleneck ? 4 * width : width;
    }
    groups_.push_back(&blocks);
    width *= 2;
  }
  fc_ = &add<Linear>("fc", channels, options.classes());
}

Value Resnet::forward(Pass& pass, const Value& x) const {
  Value value = bn1_->forward_relu(pass, conv1_->forward(pass, x));
  if (max_pool_) {
    value = functions::max_pool2d(pass, value, {.kernel = 3, .stride = 2, .padding = 1});
  }
  for (const Sequential* blocks : groups_) value = blocks->forward(pass, value);
  value = functions::adaptive_avg_pool2d(pass, value, 1, 1);
  return fc_->forward(pass, functions::flatten(pass, value));
}

}  // namespace dtrain
