// Unknown, misplaced, duplicate and mistyped keys: each is reported, all in one pass.
#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

TEST(Strictness, UnknownKeysNameTheNearest) {
  EXPECT_EQ(problem("learing_rate: 0.1\n"),
            "c.yaml:1:1: learing_rate: unknown key (value '0.1'); did you mean optimizer.lr?");
  EXPECT_EQ(problem("optimizer:\n  learing_rate: 0.1\n"),
            "c.yaml:2:3: optimizer.learing_rate: unknown key (value '0.1'); did you mean "
            "optimizer.lr?");
  EXPECT_EQ(problem("lr: 0.1\n"),
            "c.yaml:1:1: lr: unknown key (value '0.1'); did you mean optimizer.lr?");
  EXPECT_EQ(problem("train: {batchsize: 32}\n"),
            "c.yaml:1:9: train.batchsize: unknown key (value '32'); did you mean batch.global?");
  EXPECT_EQ(problem("num-epochs: 3\n"),
            "c.yaml:1:1: num-epochs: unknown key (value '3'); did you mean train.epochs?");
  EXPECT_EQ(problem("log: {every-steps: 3}\n"),
            "c.yaml:1:7: log.every-steps: unknown key (value '3'); did you mean log.every_steps?");
  EXPECT_EQ(problem("data: {train: {kind: glyphs}, transforms: {flp: true}}\n"),
            "c.yaml:1:44: data.transforms.flp: unknown key (value 'true'); did you mean "
            "data.transforms.flip?");
  EXPECT_EQ(problem("optimiser: {lr: 1}\n"),
            "c.yaml:1:1: optimiser: unknown key; did you mean optimizer?");
  EXPECT_EQ(problem("zzzzzz: {a: 1}\n"), "c.yaml:1:1: zzzzzz: unknown key");
  EXPECT_EQ(problem("timeout: 3\n"),
            "c.yaml:1:1: timeout: unknown key (value '3'); did you mean data.timeout or "
            "parallel.timeout?");
}

TEST(Strictness, KeysOfAKindStandBesideItsSelector) {
  EXPECT_EQ(problem("model: {name: convnet, chanels: [1]}\n"),
            "c.yaml:1:24: model.chanels: unknown key; did you mean model.channels?");
  EXPECT_EQ(problem("model: {name: convnet, inputs: 3}\n"),
            "c.yaml:1:24: model.inputs: unknown key (value '3'): it belongs to name mlp, but "
            "model.name is 'convnet'");
  EXPECT_EQ(problem("model: {name: convnett, x: 3}\n"),
            "c.yaml:1:15: model.name: unknown kind 'convnett'; did you mean convnet? known are "
            "convnet, gpt, mlp, resnet");
  EXPECT_EQ(problem("model: {channels: [1]}\n"),
            "c.yaml:1:8: model.name: the key is required, but missing: text (kind of model)");
  EXPECT_EQ(problem("model: {name: mlp, outputs: 3}\n"),
            "c.yaml:1:8: model.inputs: the key is required, but missing: a whole number (features "
            "of a sample, all dimensions multiplied)");
  const Config config = read("model: {channels: [3], name: convnet, hidden: 7}\n");
  const auto model = unpack<config::Convnet>(config.values.model().options());
  EXPECT_EQ(model.channels(0), 3);
  EXPECT_EQ(model.hidden(), 7);
  EXPECT_TRUE(model.has_classes());  // defaults are spelled out
  EXPECT_EQ(model.classes(), 10);
}

TEST(Strictness, AllProblemsComeInOnePassInTheOrderOfTheFile) {
  const std::vector<std::string> all = problems_of_text(
      "lr: 1\nmodel: {name: mlp, inputs: x, outputs: 0}\ndata: {train: {kind: nope}}\n"
      "batch: {global: 10, micro: 4}\ntrain: {epochs: 2.5}\noptimizer: {nesterov: true}\n",
      {"seed=-1"});
  ASSERT_EQ(all.size(), 8U) << ::testing::PrintToString(all);
  EXPECT_TRUE(all[0].starts_with("c.yaml:1:1: lr:"));
  EXPECT_TRUE(all[1].starts_with("c.yaml:2:28: model.inputs:"));
  EXPECT_TRUE(all[2].starts_with("c.yaml:2:40: model.outputs:"));
  EXPECT_TRUE(all[3].starts_with("c.yaml:3:22: data.train.kind:"));
  EXPECT_TRUE(all[4].starts_with("c.yaml:4:28: batch.micro:"));
  EXPECT_TRUE(all[5].starts_with("c.yaml:5:17: train.epochs:"));
  EXPECT_TRUE(all[6].starts_with("c.yaml:6:23: optimizer.nesterov:"));
  EXPECT_TRUE(all[7].starts_with("override 'seed=-1': seed:"));
}

TEST(Strictness, DuplicateKeysNameBothLines) {
  EXPECT_EQ(problem("optimizer:\n  lr: 0.1\n  momentum: 0.9\n  lr: 0.2\n"),
            "c.yaml:4:3: optimizer.lr: the key is given twice, on line 2 and on line 4; keep one");
  EXPECT_EQ(problem("optimizer: {lr: 0.1}\nseed: 1\noptimizer: {momentum: 0.1}\n"),
            "c.yaml:3:1: optimizer: the key is given twice, on line 1 and on line 3; keep one");
  EXPECT_EQ(problem("optimizer: {lr: 0.1, \"lr\": 0.1}\n"),
            "c.yaml:1:22: optimizer.lr: the key is given twice, on line 1 and on line 1; keep one");
}

TEST(Strictness, WrongTypesAreNotHiddenByDefaults) {
  EXPECT_EQ(problem("optimizer:\n  lr:\n"),
            "c.yaml:2:3: optimizer.lr: the value is empty; give a number, or leave the key out");
  EXPECT_EQ(problem("seed: ~\n"),
            "c.yaml:1:7: seed: the value is empty; give a whole number, or leave the key out");
  EXPECT_EQ(problem("optimizer:\nseed: 1\n"),
            "c.yaml:1:1: optimizer: the section is empty; give its keys, or leave it out");
  EXPECT_EQ(problem("batch: {global: [32], micro: 8}\n"),
            "c.yaml:1:17: batch.global: expected a whole number, found a list");
  EXPECT_EQ(problem("batch: [32]\n"),
            "c.yaml:1:8: batch: expected a section of 'key: value' lines, found a list");
  EXPECT_EQ(problem("seed: {a: 1}\n"),
            "c.yaml:1:7: seed: expected a whole number, found a section");
  EXPECT_EQ(problem("model: {name: convnet, channels: 32}\n"),
            "c.yaml:1:34: model.channels: expected a list of whole numbers, found '32'; write "
            "[32]");
  EXPECT_EQ(problem("model: {name: convnet, channels: [1, 2.5]}\n"),
            "c.yaml:1:38: model.channels[1]: expected a whole number, found '2.5'");
  EXPECT_EQ(problem("model: {name: convnet, channels: []}\n"),
            "c.yaml:1:34: model.channels: the list must not be empty");
  EXPECT_EQ(problem("model: {name: convnet, channels: [[1]]}\n"),
            "c.yaml:1:35: model.channels[0]: expected a list of whole numbers, which holds plain "
            "values; found a list in it");
  EXPECT_EQ(problem("optimizer: {lr: 1,5}\n"),
            "c.yaml:1:19: optimizer.5: unknown key: a comma ends a value here; write a point "
            "before the fraction of a number");
}

TEST(Strictness, ChoicesNameTheNearest) {
  EXPECT_EQ(problem("data: {train: {kind: glyphs}, on_bad_sample: Skip}\n"),
            "c.yaml:1:46: data.on_bad_sample: must be stop or skip, found 'Skip'; did you mean "
            "skip?");
  EXPECT_EQ(
      problem("optimizer: adm\n"),
      "c.yaml:1:12: optimizer.name: must be sgd, adam, adamw or lamb, found 'adm'; did you mean "
      "adam?");
}

TEST(Strictness, KeysOfAnotherOptimizerScheduleOrLossAreErrors) {
  EXPECT_EQ(problem("optimizer: {momentum: 0.9, name: adam}\n"),
            "c.yaml:1:23: optimizer.momentum: the key belongs to sgd, but optimizer.name is adam; "
            "leave it out");
  EXPECT_EQ(
      problem("optimizer: {betas: [0.9, 0.99]}\n"),
      "c.yaml:1:20: optimizer.betas: the key belongs to adam, adamw or lamb, but optimizer.name is "
      "sgd; leave it out");
  EXPECT_EQ(problem("schedule: {name: cosine, gamma: 0.5}\n"),
            "c.yaml:1:33: schedule.gamma: the key belongs to step or multistep, but schedule.name "
            "is cosine; leave it out");
  EXPECT_EQ(problem("loss: {name: mse, class_weights: [1]}\n"),
            "c.yaml:1:34: loss.class_weights: the key belongs to cross_entropy, but loss.name is "
            "mse; leave it out");
  EXPECT_EQ(problem("loss: {name: bce, label_smoothing: 0.1}\n").find("c.yaml:1:36: loss."), 0U);
}

TEST(Strictness, MissingSectionsSayWhatToAdd) {
  const std::vector<std::string> all = problems_of_text("seed: 1\n");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0],
            "c.yaml:1:1: model: the key is required, but missing: a section (what to train, as in "
            "{name: convnet})");
  EXPECT_TRUE(all[1].starts_with("c.yaml:1:1: data: the key is required"));
  EXPECT_TRUE(all[2].starts_with("c.yaml:1:1: batch: the key is required"));
}

TEST(Strictness, ThousandsOfMistakesMakeAReadableMessage) {
  std::string yaml;
  for (int i = 0; i < 20000; ++i) yaml += "learning_rat" + std::to_string(i) + ": 1\n";
  const std::vector<std::string> all = problems_of_text(yaml);
  ASSERT_EQ(all.size(), 101U);
  EXPECT_EQ(all.back(), "c.yaml: and 19903 more problems");
}

TEST(Strictness, HostileTextCannotForgeMessages) {
  const std::string line = problem("\"a\\nb\": \"c\\nd\\x1b[0m\"\n");
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace dtrain::testing
