// The built-in models and the registry.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/nn/arena.h"
#include "dtrain/models/convnet.h"
#include "dtrain/models/mlp.h"
#include "dtrain/models/names.h"
#include "dtrain/models/registry.h"

namespace dtrain {
namespace {

std::vector<std::string> parameters(Module& model) {
  const ArenaLayout layout(model);
  std::vector<std::string> names;
  for (auto it = layout.parameters().rbegin(); it != layout.parameters().rend(); ++it) {
    names.push_back((*it)->name + " " + to_string((*it)->shape));
  }
  return names;
}

config::Mlp mlp(int inputs, const std::vector<int>& hidden, int outputs, bool bias = true) {
  config::Mlp options;
  options.set_inputs(inputs);
  for (const int width : hidden) options.add_hidden(width);
  options.set_outputs(outputs);
  options.set_bias(bias);
  return options;
}

TEST(Mlp, LayersAreNumbered) {
  Mlp model(mlp(6, {5, 4}, 3), {.shape = {2, 3}});
  EXPECT_EQ(parameters(model),
            (std::vector<std::string>{"fc1.weight [5, 6]", "fc1.bias [5]", "fc2.weight [4, 5]",
                                      "fc2.bias [4]", "fc3.weight [3, 4]", "fc3.bias [3]"}));
}

TEST(Mlp, WithoutHiddenLayersItIsLinear) {
  Mlp model(mlp(1, {}, 1, false), {.shape = {1}});
  EXPECT_EQ(parameters(model), (std::vector<std::string>{"fc1.weight [1, 1]"}));
}

TEST(Mlp, SaysWhatTheDataHas) {
  try {
    Mlp model(mlp(100, {}, 1), {.shape = {28, 28, 1}});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(),
                 "model.inputs: 100 does not fit the data, whose samples are [28, 28, 1]: write "
                 "model.inputs: 784");
  }
}

config::Convnet convnet(const std::vector<int>& channels, bool batch_norm) {
  config::Convnet options;
  for (const int c : channels) options.add_channels(c);
  options.set_hidden(7);
  options.set_classes(5);
  options.set_batch_norm(batch_norm);
  options.set_dropout(0);
  return options;
}

TEST(Convnet, BatchNormTakesTheBiasOver) {
  Convnet with(convnet({4}, true), {.shape = {6, 4, 3}});
  EXPECT_EQ(parameters(with),
            (std::vector<std::string>{"conv1.weight [4, 3, 3, 3]", "bn1.weight [4]", "bn1.bias [4]",
                                      "fc1.weight [7, 24]", "fc1.bias [7]", "fc2.weight [5, 7]",
                                      "fc2.bias [5]"}));
  Convnet without(convnet({4, 2}, false), {.shape = {8, 8, 1}});
  EXPECT_EQ(
      parameters(without),
      (std::vector<std::string>{"conv1.weight [4, 1, 3, 3]", "conv1.bias [4]",
                                "conv2.weight [2, 4, 3, 3]", "conv2.bias [2]", "fc1.weight [7, 8]",
                                "fc1.bias [7]", "fc2.weight [5, 7]", "fc2.bias [5]"}));
}

TEST(Convnet, OddSizesArePooledDown) {
  Convnet model(convnet({4, 4}, true), {.shape = {7, 5, 1}});
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
  const Value y =
      model.forward(pass, pass.input(Tensor::zeros({3, 7, 5, 1}, DType::f32, allocator, "images")));
  EXPECT_EQ(y.shape(), (Shape{3, 5}));
}

TEST(ModelsOfNumbers, DoNotTakeTokens) {
  const auto error = [](const auto& make) -> std::string {
    try {
      make(ModelInput{.shape = {8}, .classes = 5, .target = {8}, .dtype = DType::i32});
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  config::Mlp mlp;
  mlp.set_inputs(8);
  mlp.set_outputs(5);
  EXPECT_EQ(error([&](const ModelInput& input) { Mlp model(mlp, input); }),
            "model.name: mlp wants numbers, but the data's samples are tokens (i32)");
  EXPECT_EQ(error([&](const ModelInput& input) { Convnet model(convnet({4}, true), input); }),
            "model.name: convnet wants images [height, width, channels], but the data's samples "
            "are tokens: use image data");
}

TEST(Convnet, WantsImagesThatAreLargeEnough) {
  const auto error = [](const std::vector<int>& channels, const Shape& shape) -> std::string {
    try {
      Convnet model(convnet(channels, true), {.shape = shape});
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({4}, {10}),
            "model.name: convnet wants images [height, width, channels], but the data's samples "
            "are [10]: use model mlp, or image data");
  EXPECT_EQ(error({4, 4, 4}, {7, 9, 1}),
            "model.channels: 3 stages of 2 x 2 pooling leave nothing of an image of 7 x 9: use at "
            "most 2 entries");
  EXPECT_EQ(error({4, 4}, {1, 1, 1}),
            "model.channels: 2 stages of 2 x 2 pooling leave nothing of an image of 1 x 1: use "
            "model mlp, or images of at least 2 x 2");
  EXPECT_EQ(error({4, 4}, {7, 9, 1}), "");
  EXPECT_EQ(error({4, 4, 4}, {8, 8, 1}), "");
}

TEST(Names, OfActivationsAndSchemes) {
  EXPECT_EQ(activation_named("gelu"), &functions::gelu);
  EXPECT_EQ(init_named("default"), InitScheme::uniform_fan_in);
  try {
    activation_named("swish");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "activation 'swish' is not known; use one of gelu, relu, sigmoid, tanh");
  }
  try {
    init_named("he");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(),
                 "init 'he' is not known; use one of default, kaiming_normal, kaiming_uniform, "
                 "ones, xavier_normal, xavier_uniform, zeros");
  }
}

TEST(ModelRegistry, MakesModelsOfARecipe) {
  ModelRegistry models;
  register_builtin_models(models);
  KindSchema schema("two_numbers");
  schema.integer("width", 3, "units");
  std::int64_t width = 0;
  models.add(schema, [&width](const KindValues& values, const ModelInput& input) {
    width = values.integer("width");
    return std::make_unique<Mlp>(mlp(static_cast<int>(input.shape.elements()), {}, 1), input);
  });
  KindTable kinds;
  models.register_kinds(kinds);
  EXPECT_EQ(kinds.kinds("model"),
            (std::vector<std::string>{"convnet", "gpt", "mlp", "resnet", "two_numbers"}));
  kinds.add("dataset", "glyphs", config::Glyphs::default_instance());
  const Config config = parse_config(
      "model: {name: two_numbers, width: 9}\ndata: {train: {kind: glyphs, size: 8}}\n"
      "batch: {global: 8, micro: 8}\n",
      "c.yaml", "/", {}, kinds);
  const auto model = models.create(config.values.model(), {.shape = {4}});
  EXPECT_EQ(width, 9);
  EXPECT_EQ(parameters(*model), (std::vector<std::string>{"fc1.weight [1, 4]", "fc1.bias [1]"}));
}

TEST(ModelRegistry, AModelThatIsNotThereIsAnError) {
  config::Model model;
  model.set_name("vgg");
  EXPECT_THROW(ModelRegistry().create(model, {}), ConfigError);
}

}  // namespace
}  // namespace dtrain
