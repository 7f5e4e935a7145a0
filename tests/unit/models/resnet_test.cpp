// resnet: torchvision's parameters, and what the options change.
#include "dtrain/models/resnet.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/nn/arena.h"

namespace dtrain {
namespace {

config::Resnet resnet(int depth, const std::string& stem = "imagenet", int classes = 1000,
                      bool zero = false) {
  config::Resnet options;
  options.set_depth(depth);
  options.set_stem(stem);
  options.set_classes(classes);
  options.set_zero_init_last_norm(zero);
  return options;
}

const ModelInput image{.shape = {32, 32, 3}};

TEST(Resnet, HasTorchvisionsNumberOfParameters) {
  const std::map<int, std::int64_t> counts{
      {18, 11689512}, {34, 21797672}, {50, 25557032}, {101, 44549160}, {152, 60192808}};
  for (const auto& [depth, count] : counts) {
    Resnet model(resnet(depth), image);
    EXPECT_EQ(ArenaLayout(model).parameter_count(), count) << depth;
  }
}

TEST(Resnet, HasTorchvisionsNamesInItsOrder) {
  Resnet model(resnet(50), image);
  const ArenaLayout layout(model);
  std::vector<std::string> names;
  for (auto it = layout.parameters().rbegin(); it != layout.parameters().rend(); ++it) {
    names.push_back((*it)->name + " " + to_string((*it)->shape));
  }
  ASSERT_EQ(names.size(), 161U);
  names.resize(18);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "conv1.weight [64, 3, 7, 7]", "bn1.weight [64]", "bn1.bias [64]",
                       "layer1.0.conv1.weight [64, 64, 1, 1]", "layer1.0.bn1.weight [64]",
                       "layer1.0.bn1.bias [64]", "layer1.0.conv2.weight [64, 64, 3, 3]",
                       "layer1.0.bn2.weight [64]", "layer1.0.bn2.bias [64]",
                       "layer1.0.conv3.weight [256, 64, 1, 1]", "layer1.0.bn3.weight [256]",
                       "layer1.0.bn3.bias [256]", "layer1.0.downsample.0.weight [256, 64, 1, 1]",
                       "layer1.0.downsample.1.weight [256]", "layer1.0.downsample.1.bias [256]",
                       "layer1.1.conv1.weight [64, 256, 1, 1]", "layer1.1.bn1.weight [64]",
                       "layer1.1.bn1.bias [64]"}));
  EXPECT_EQ(layout.parameters()[0]->name, "fc.bias");
  EXPECT_EQ(layout.parameters()[1]->shape, (Shape{1000, 2048}));
}

TEST(Resnet, TheCifarStemIsSmall) {
  Resnet model(resnet(18, "cifar", 10), image);
  const ArenaLayout layout(model);
  EXPECT_EQ(layout.parameters().back()->shape, (Shape{64, 3, 3, 3}));
  EXPECT_EQ(layout.parameter_count(), 11689512 - 3 * 64 * (49 - 9) - 990 * 513);
}

// Outputs of an untrained model for two images.
std::vector<float> outputs_of(Module& model, const Shape& shape, int classes) {
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  initialize(arena, RandomKey(1));
  Allocator allocator("test");
  OpContext context(allocator, 1);
  context.bind_to_this_thread();
  Pass pass(context,
            {.weights = std::as_const(arena).weights(),
             .buffers = std::as_const(arena).buffers(),
             .gradients = {},
             .parameters = layout.parameters()},
            {.training = false});
  const Tensor images = Tensor::empty(shape, DType::f32, allocator, "images");
  RandomSequence random(RandomKey(2));
  for (float& value : images.values<float>()) value = static_cast<float>(random.normal());
  const Value y = model.forward(pass, pass.input(images));
  EXPECT_EQ(y.shape(), (Shape{shape[0], classes}));
  const auto values = y.tensor.values<float>();
  return {values.begin(), values.end()};
}

TEST(Resnet, TakesImagesOfAnySize) {
  for (const char* stem : {"cifar", "imagenet"}) {
    Resnet model(resnet(18, stem, 10), {.shape = {9, 7, 1}});
    for (const float value : outputs_of(model, {2, 9, 7, 1}, 10)) {
      EXPECT_TRUE(std::isfinite(value)) << stem;
    }
  }
}

TEST(Resnet, ZeroInitOfTheLastNormZeroesThatAlone) {
  Resnet model(resnet(50, "cifar", 10, true), image);
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  initialize(arena, RandomKey(1));
  int zeros = 0;
  for (const Parameter* parameter : layout.parameters()) {
    const std::string& name = parameter->name;
    if (!name.ends_with(".weight") || parameter->shape.rank() != 1) continue;
    const float expected = name.ends_with(".bn3.weight") ? 0.0F : 1.0F;
    zeros += expected == 0;
    for (const float value : arena.weight(*parameter)) ASSERT_EQ(value, expected) << name;
  }
  EXPECT_EQ(zeros, 16);
}

TEST(Resnet, SaysWhatDoesNotFit) {
  const auto error = [](int depth, const Shape& shape) -> std::string {
    try {
      Resnet model(resnet(depth), {.shape = shape});
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error(20, {32, 32, 3}), "model.depth: 20 is not one of 18, 34, 50, 101, 152");
  EXPECT_EQ(error(18, {784}),
            "model.name: resnet wants images [height, width, channels], but the data's samples "
            "are [784]: use model mlp, or image data");
}

}  // namespace
}  // namespace dtrain
