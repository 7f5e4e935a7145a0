// Any recipe that is accepted is written and read back as the same values.
#include <fmt/format.h>
#include <rapidcheck.h>

#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

std::string pick(const std::vector<std::string>& words) {
  return *rc::gen::elementOf(words);
}

// A positive number of any size, as a person or a program may write it.
std::string number() {
  const int mantissa = *rc::gen::inRange(1, 10000);
  const int exponent = *rc::gen::inRange(-12, 0);
  return fmt::format("{}e{}", mantissa, exponent);
}

std::string random_recipe() {
  const int micro = *rc::gen::inRange(1, 50);
  const int accumulate = *rc::gen::inRange(1, 9);
  const int ranks = *rc::gen::inRange(1, 20);
  const int sizes = *rc::gen::inRange(0, 4);
  std::string batch;
  if (sizes != 0) batch += fmt::format("  global: {}\n", micro * accumulate * ranks);
  if (sizes != 1) batch += fmt::format("  micro: {}\n", micro);
  if (sizes != 2) batch += fmt::format("  accumulate: {}\n", accumulate);
  std::string text = fmt::format("batch:\n{}parallel: {{virtual_ranks: {}, reduction: {}}}\n",
                                 batch, ranks, pick({"fast", "reproducible"}));
  text += pick({"model: {name: convnet, channels: [3], dropout: 0.25}\n",
                "model: {name: mlp, inputs: 4, outputs: 2, hidden: [], init: zeros}\n",
                "model: {name: mlp, inputs: 4, outputs: 2, hidden: [5, 6], activation: tanh}\n"});
  text += pick({"data: {train: {kind: glyphs, size: 33.3%}, shuffle: false}\n",
                "data: {train: {kind: mnist, images: \"a b\", labels: ../x, offset: 10}}\n",
                "data: {train: {kind: csv, path: p, features: [x, 'y z'], targets: [t], "
                "separator: \"\\t\"}, validation: {kind: glyphs}}\n"});
  text += fmt::format("optimizer: {{name: {}, lr: {}, weight_decay: {}}}\n",
                      pick({"sgd", "adam", "adamw"}), number(), number());
  text += pick({"", "schedule: one_cycle\n", "schedule: {name: step, step_size: 4}\n",
                "schedule: {name: multistep, milestones: [1, 7], gamma: .5}\n"});
  text += pick({"", "loss: mse\n", "loss: {label_smoothing: 0.1, class_weights: [1, 2.5]}\n"});
  text += pick({"", "train: {steps: 9}\n", "train: {epochs: 3, clip_norm: 1.5}\n"});
  text += fmt::format("seed: {}\n", *rc::gen::arbitrary<std::uint64_t>());
  return text;
}

TEST(Property, WrittenRecipesReadBackAsTheSameValues) {
  EXPECT_TRUE(rc::check([] {
    const Config config = read(random_recipe());
    const std::string yaml = to_yaml(config, known_kinds());
    const Config again = parse_config(yaml, "other.yaml", "/elsewhere", {}, known_kinds());
    RC_ASSERT(again.values.SerializeAsString() == config.values.SerializeAsString());
    RC_ASSERT(recipe_digest(again) == recipe_digest(config));
    RC_ASSERT(recipe_differences(again.values, config.values).empty());
  }));
}

TEST(Property, AnyBytesAreARecipeOrAConfigError) {
  EXPECT_TRUE(rc::check([](const std::string& bytes) {
    try {
      parse_config(bytes, "c.yaml", "/recipes", {}, known_kinds());
      RC_FAIL("accepted");
    } catch (const ConfigError&) {
    }
  }));
}

}  // namespace
}  // namespace dtrain::testing
