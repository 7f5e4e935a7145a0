#include <limits>

#include "dtrain/core/config/kind_schema.h"
#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

struct Sizes {
  int global, micro, accumulate, ranks;
  bool operator==(const Sizes&) const = default;
};

Sizes sizes(const std::string& yaml) {
  const Config config = read(yaml);
  const config::Batch& batch = config.values.batch();
  return {batch.global(), batch.micro(), batch.accumulate(),
          config.values.parallel().virtual_ranks()};
}

std::string with_ranks(const std::string& batch, const std::string& ranks) {
  return "batch: {" + batch + "}\nparallel: {virtual_ranks: " + ranks + "}\n";
}

TEST(Batch, AutoIsTheLargestPowerOfTwoUpToEight) {
  EXPECT_EQ(sizes("batch: {global: 256, micro: 32}\n"), (Sizes{256, 32, 1, 8}));
  EXPECT_EQ(sizes("batch: {global: 256, micro: 4}\n"), (Sizes{256, 4, 8, 8}));
  EXPECT_EQ(sizes("batch: {global: 24, micro: 2}\n"), (Sizes{24, 2, 3, 4}));
  EXPECT_EQ(sizes("batch: {global: 6, micro: 2}\n"), (Sizes{6, 2, 3, 1}));
  EXPECT_EQ(sizes("batch: {global: 5, micro: 5}\n"), (Sizes{5, 5, 1, 1}));
}

TEST(Batch, AnyTwoSayTheThird) {
  EXPECT_EQ(sizes(with_ranks("global: 48, micro: 4", "6")), (Sizes{48, 4, 2, 6}));
  EXPECT_EQ(sizes(with_ranks("global: 48, accumulate: 2", "6")), (Sizes{48, 4, 2, 6}));
  EXPECT_EQ(sizes(with_ranks("micro: 4, accumulate: 2", "6")), (Sizes{48, 4, 2, 6}));
  EXPECT_EQ(sizes(with_ranks("global: 48, micro: 4, accumulate: 2", "6")), (Sizes{48, 4, 2, 6}));
  EXPECT_EQ(sizes("batch: {global: 48, micro: 4, accumulate: 2}\n"), (Sizes{48, 4, 2, 6}));
}

TEST(Batch, WhatDoesNotDivideListsWhatDoes) {
  EXPECT_EQ(problem("batch: {global: 100, micro: 32}\n"),
            "c.yaml:1:29: batch.micro: 32 does not divide batch.global = 100: take micro = 1, 2, "
            "4, 5, 10, 20, 25, 50, or global = 96, 128");
  EXPECT_EQ(problem(with_ranks("global: 96, micro: 8", "8")),
            "c.yaml:2:27: parallel.virtual_ranks: 8 does not divide batch.global / batch.micro = "
            "12: take virtual_ranks = 1, 2, 3, 4, 6, 12, or global = 64, 128");
  EXPECT_EQ(problem(with_ranks("global: 64, accumulate: 3", "4")),
            "c.yaml:1:33: batch.accumulate: virtual_ranks * accumulate = 4 * 3 does not divide "
            "batch.global = 64: take accumulate = 1, 2, 4, 8, 16, or global = 60, 72");
  EXPECT_EQ(problem(with_ranks("global: 64, accumulate: 3", "5")),
            "c.yaml:1:33: batch.accumulate: virtual_ranks * accumulate = 5 * 3 does not divide "
            "batch.global = 64: take global = 60, 75");
  EXPECT_NE(problem(with_ranks("global: 64, micro: 4, accumulate: 3", "4"))
                .find("batch.global = 64 is not virtual_ranks * accumulate * micro = 4 * 3 * 4"),
            std::string::npos);
  EXPECT_NE(problem("batch: {global: 64, micro: 4, accumulate: 3}\n").find("= auto * 3 * 4"),
            std::string::npos);
  EXPECT_NE(problem("batch: {global: 8192, micro: 1, accumulate: 1}\n").find("more than 4096"),
            std::string::npos);
}

TEST(Batch, TooLittleSaysWhatToAdd) {
  EXPECT_NE(problem("batch: {global: 64}\n").find("batch.micro: missing beside batch.global: add"),
            std::string::npos);
  EXPECT_NE(problem("batch: {micro: 64}\n").find("(a multiple of 64)"), std::string::npos);
  EXPECT_NE(problem("batch: {accumulate: 2}\n").find("add batch.global"), std::string::npos);
  EXPECT_NE(problem("batch: {}\n").find("give two of global, micro and accumulate"),
            std::string::npos);
  EXPECT_NE(problem("batch: {global: 64, accumulate: 2}\n")
                .find("parallel.virtual_ranks: must be a number where batch.micro is not given"),
            std::string::npos);
  EXPECT_NE(problem("batch: {micro: 64, accumulate: 2}\n")
                .find("parallel.virtual_ranks: must be a number where batch.global is not given"),
            std::string::npos);
}

TEST(Batch, ProductsDoNotOverflow) {
  const std::string huge = std::to_string(std::numeric_limits<std::int32_t>::max());
  EXPECT_NE(problem(with_ranks("micro: " + huge + ", accumulate: " + huge, "4096"))
                .find("more than a batch can have"),
            std::string::npos);
  EXPECT_EQ(sizes(with_ranks("micro: " + huge + ", accumulate: 1", "1")).global,
            std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(problems("batch: {global: " + huge + ", micro: 2}\n").size(), 1U);
}

// For every small batch, the answer satisfies the definition, and a refusal has a reason.
TEST(Batch, EverySmallCombination) {
  for (int global = 1; global <= 40; ++global) {
    for (int micro = 1; micro <= global; ++micro) {
      for (int ranks = 0; ranks <= 9; ++ranks) {
        const std::string yaml =
            with_ranks("global: " + std::to_string(global) + ", micro: " + std::to_string(micro),
                       ranks == 0 ? "auto" : std::to_string(ranks));
        const bool fits = global % micro == 0 && (ranks == 0 || (global / micro) % ranks == 0);
        if (!fits) {
          EXPECT_EQ(problems(yaml).size(), 1U) << yaml;
          continue;
        }
        const Sizes s = sizes(yaml);
        EXPECT_EQ(s.global, global);
        EXPECT_EQ(s.micro, micro);
        EXPECT_EQ(s.ranks * s.accumulate * s.micro, global) << yaml;
        if (ranks == 0) {
          EXPECT_TRUE(s.ranks == 8 || (s.ranks < 8 && s.accumulate % 2 == 1)) << yaml;
        } else {
          EXPECT_EQ(s.ranks, ranks);
        }
      }
    }
  }
}

TEST(Resolve, DefaultsAreSpelledOut) {
  const Config config = read("");
  const config::TrainConfig& recipe = config.values;
  EXPECT_EQ(config.name, "c");
  EXPECT_EQ(recipe.output(), (std::filesystem::current_path() / "runs/c").string());
  const auto model = unpack<config::Convnet>(recipe.model().options());
  EXPECT_EQ(std::vector<int>(model.channels().begin(), model.channels().end()),
            (std::vector<int>{32, 64}));
  EXPECT_TRUE(recipe.has_seed());
  EXPECT_TRUE(recipe.loss().has_label_smoothing());
  EXPECT_EQ(recipe.optimizer().name(), "sgd");
  EXPECT_EQ(recipe.optimizer().lr(), 1e-3);
  EXPECT_EQ(recipe.optimizer().weight_decay(), 0);
  EXPECT_TRUE(recipe.optimizer().has_weight_decay());
  EXPECT_EQ(recipe.optimizer().betas_size(), 0);  // sgd has none
  EXPECT_EQ(recipe.train().epochs(), 1);
  EXPECT_FALSE(recipe.train().has_steps());
  EXPECT_FALSE(recipe.data().has_validation());
  EXPECT_TRUE(recipe.checkpoint().has_keep_last());
  EXPECT_EQ(recipe.parallel().virtual_ranks(), 8);
  EXPECT_EQ(recipe.batch().accumulate(), 1);
  EXPECT_EQ(config.origins.at("batch.accumulate"), "derived");
  EXPECT_EQ(config.origins.at("parallel.virtual_ranks"), "derived");
}

TEST(Resolve, OptimizersHaveTheirOwnDefaults) {
  const config::Optimizer adamw = read("optimizer: adamw\n").values.optimizer();
  EXPECT_EQ(adamw.weight_decay(), 0.01);
  EXPECT_EQ(adamw.betas(0), 0.9);
  EXPECT_EQ(adamw.betas(1), 0.999);
  EXPECT_EQ(adamw.eps(), 1e-8);
  EXPECT_EQ(read("optimizer: {name: adamw, weight_decay: 0}\n").values.optimizer().weight_decay(),
            0);
  EXPECT_EQ(read("optimizer: adam\n").values.optimizer().weight_decay(), 0);
}

TEST(Resolve, OptimizerChecks) {
  EXPECT_EQ(problem("optimizer: {nesterov: true}\n"),
            "c.yaml:1:23: optimizer.nesterov: needs optimizer.momentum above 0");
  EXPECT_EQ(problem("optimizer: {nesterov: true, momentum: 0.9, dampening: 0.1}\n"),
            "c.yaml:1:23: optimizer.nesterov: needs optimizer.dampening 0, found 0.1");
  EXPECT_EQ(problem("optimizer: {name: adam, betas: [0.9]}\n"),
            "c.yaml:1:32: optimizer.betas: must be two numbers such as [0.9, 0.999], found 1");
  EXPECT_EQ(problem("optimizer: {name: adam, betas: [0.9, 1]}\n"),
            "c.yaml:1:32: optimizer.betas: must be less than 1, found 1");
  EXPECT_EQ(problem("optimizer: {name: adam, betas: [1, 1]}\n"),  // said once
            "c.yaml:1:32: optimizer.betas: must be less than 1, found 1");
}

TEST(Resolve, TheKeyThatAnOverrideChangedIsBlamed) {
  const std::string yaml =
      "data: {train: {kind: glyphs, size: 4}, validation: {kind: mnist, images: a, labels: b, "
      "size: 60%}}\n";
  const std::string text = problem(yaml, {"data.validation.offset=50%"});
  EXPECT_TRUE(text.starts_with("override 'data.validation.offset=50%': data.validation.offset: "))
      << text;
}

TEST(Resolve, MeanAndStdAreOnePerChannel) {
  const std::string text =
      problem("data: {train: {kind: glyphs, size: 4}, transforms: {mean: [1, 1], std: [1]}}\n");
  EXPECT_TRUE(
      text.ends_with("data.transforms.std: mean has 2 numbers, std 1 number: give both one "
                     "number per channel of the samples, or one for all channels"))
      << text;
}

TEST(Resolve, LengthOfTraining) {
  EXPECT_EQ(problem("train: {epochs: 1, steps: 3}\n"),
            "c.yaml:1:27: train.steps: given beside train.epochs; keep one of the two");
  EXPECT_FALSE(read("train: {steps: 3}\n").values.train().has_epochs());
}

TEST(Resolve, ScheduleChecks) {
  EXPECT_NE(problem("schedule: step\n").find("schedule.step_size: the key is required"),
            std::string::npos);
  EXPECT_NE(problem("schedule: multistep\n").find("schedule.milestones: the key is required"),
            std::string::npos);
  EXPECT_NE(problem("schedule: {name: multistep, milestones: [10, 10]}\n")
                .find("must increase, found 10 after 10"),
            std::string::npos);
  EXPECT_NE(problem("schedule: {name: cosine, min_lr: 1}\n").find("must be at most optimizer.lr"),
            std::string::npos);
  EXPECT_NE(problem("schedule: {warmup_steps: 11}\ntrain: {steps: 10}\n")
                .find("must be at most train.steps = 10"),
            std::string::npos);
  EXPECT_NE(problem("schedule: {name: one_cycle, warmup_steps: 1}\n").find("rises by itself"),
            std::string::npos);
  EXPECT_EQ(read("schedule: one_cycle\noptimizer: {lr: 0.2}\n").values.schedule().max_lr(), 0.2);
  EXPECT_EQ(problems("schedule: {name: step, step_size: 5}\n"), std::vector<std::string>());
}

TEST(Resolve, DataChecks) {
  EXPECT_NE(problem("data: {train: {kind: glyphs}, transforms: {mean: [1, 2], std: [1]}}\n")
                .find("mean has 2 numbers, std 1 number: give both one number per channel"),
            std::string::npos);
  EXPECT_NE(problem("data: {train: {kind: synthetic, shape: [1, 2]}}\n").find("found 2 numbers"),
            std::string::npos);
  EXPECT_NE(problem("data: {train: {kind: synthetic}}\n").find("need a shape"), std::string::npos);
  EXPECT_NE(problem("data: {train: {kind: synthetic, shape: [4], tokens: 4}}\n")
                .find("either a shape or tokens"),
            std::string::npos);
  EXPECT_EQ(problems("data: {train: {kind: synthetic, tokens: 4, size: 8}}\n"),
            std::vector<std::string>());
  EXPECT_NE(problem("data: {train: {kind: synthetic, shape: [2000000000, 2000000000, "
                    "2000000000]}}\n")
                .find("more than 2147483647 elements"),
            std::string::npos);
  EXPECT_NE(problem("data: {train: {kind: csv, path: a, features: [x], targets: [a, b], classes: "
                    "true}}\n")
                .find("must be one column"),
            std::string::npos);
  EXPECT_NE(problem("data: {train: {kind: csv, path: a, features: [x], targets: [a], separator: "
                    "ab}}\n")
                .find("must be one character"),
            std::string::npos);
  EXPECT_NE(problem("train: {early_stop_patience: 2}\n").find("needs data.validation"),
            std::string::npos);
  EXPECT_NE(problem("validation: {every_steps: 2}\n").find("needs data.validation"),
            std::string::npos);
  EXPECT_NE(problem("loss: {class_weights: [0, 0]}\n").find("must not all be 0"),
            std::string::npos);
}

// A model of a program's own, with the keys that data of tokens takes.
Config with_token_model(const std::string& data, const std::string& model = "context: 64") {
  KindTable kinds = known_kinds();
  static const KindSchema schema = [] {
    KindSchema keys("tokens_model");
    keys.integer("context", 32, "tokens").integer("vocabulary", 300, "tokens");
    return keys;
  }();
  kinds.add("model", schema.name(), schema.prototype());
  return parse_config("model: {name: tokens_model, " + model + "}\ndata: {train: " + data +
                          ", validation: " + data + "}\nbatch: {global: 8, micro: 8}\n",
                      "c.yaml", "/recipes", {}, kinds);
}

TEST(ResolveTest, DataTakesContextAndVocabularyFromTheModel) {
  const Config config = with_token_model("{kind: tokens, path: a.bin}");
  for (const auto* source : {&config.values.data().train(), &config.values.data().validation()}) {
    const auto tokens = unpack<config::Tokens>(source->options());
    EXPECT_EQ(tokens.context(), 64);
    EXPECT_EQ(tokens.stride(), 64);
    EXPECT_EQ(tokens.vocabulary(), 300);
    EXPECT_EQ(tokens.path(), "/recipes/a.bin");
  }
  EXPECT_EQ(config.origins.at("data.train.context"), "derived");
  EXPECT_EQ(config.origins.at("data.validation.vocabulary"), "derived");
  // A default of the model counts too.
  const Config other = with_token_model("{kind: text, path: a.txt}", "vocabulary: 256");
  EXPECT_EQ(unpack<config::Text>(other.values.data().train().options()).context(), 32);
}

TEST(ResolveTest, WhatTheDataSaysItselfHolds) {
  const Config config =
      with_token_model("{kind: tokens, path: a.bin, context: 16, stride: 4, vocabulary: 99}");
  const auto tokens = unpack<config::Tokens>(config.values.data().train().options());
  EXPECT_EQ(tokens.context(), 16);
  EXPECT_EQ(tokens.stride(), 4);
  EXPECT_EQ(tokens.vocabulary(), 99);
  // What was resolved reads back to the same.
  const Config again =
      parse_config(to_yaml(config, config.kinds), "again.yaml", "/", {}, config.kinds);
  EXPECT_EQ(recipe_digest(again), recipe_digest(config));
}

TEST(ResolveTest, AModelWithoutContextLeavesItRequired) {
  EXPECT_EQ(
      problems("data: {train: {kind: tokens, path: a.bin}}\n"),
      (std::vector<std::string>{
          "c.yaml:1:15: data.train.context: the key is required, because model convnet has no "
          "context to take: a whole number (tokens of a window, each of which predicts the "
          "next)",
          "c.yaml:1:15: data.train.vocabulary: the key is required, because model convnet has "
          "no vocabulary to take: a whole number (ids are from 0 to vocabulary - 1)"}));
}

TEST(ResolveTest, SixteenBitsHoldNoLargerVocabulary) {
  EXPECT_NE(problem("data: {train: {kind: tokens, path: a.bin, context: 8, vocabulary: 70000, "
                    "dtype: u16}}\n")
                .find("data.train.dtype: u16 holds ids up to 65535, but the vocabulary has 70000: "
                      "use dtype u32"),
            std::string::npos);
  EXPECT_TRUE(
      problems("data: {train: {kind: tokens, path: a.bin, context: 8, vocabulary: 70000}}\n")
          .empty());
}

TEST(ResolveTest, AnAverageMustMove) {
  EXPECT_NE(problem("train: {ema_decay: 1}\n").find("must be less than 1"), std::string::npos);
  EXPECT_EQ(read("train: {ema_decay: 0.999}\n").values.train().ema_decay(), 0.999);
}

}  // namespace
}  // namespace dtrain::testing
