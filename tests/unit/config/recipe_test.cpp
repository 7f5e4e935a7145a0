// What decides bits, and what does not: see Note [Recipe and placement].
#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

constexpr const char* kMnist =
    "data: {train: {kind: mnist, images: i, labels: l}, validation: {kind: glyphs}}\n";

std::vector<std::string> change(const std::string& override_text) {
  const Config before = read(kMnist);
  const Config after = read(kMnist, {override_text});
  const std::vector<std::string> differences = recipe_differences(before.values, after.values);
  EXPECT_EQ(differences.empty(), recipe_digest(before) == recipe_digest(after)) << override_text;
  return differences;
}

TEST(Recipe, PlacementDoesNotCount) {
  for (const char* text :
       {"output=elsewhere", "data.workers=3", "data.prefetch=9", "data.timeout=5",
        "parallel.mode=single", "parallel.transport=shm", "parallel.cores=3",
        "parallel.bucket_mb=1", "parallel.check_sync=7", "parallel.timeout=3",
        "parallel.unused_parameters=error", "checkpoint.every_steps=7", "log.every_steps=3",
        "train.max_time=30", "data.train.images=/other/i", "validation.every_steps=10",
        "parallel.virtual_ranks=8", "batch.accumulate=1", "optimizer.lr=0.001"}) {
    EXPECT_EQ(change(text), std::vector<std::string>()) << text;
  }
}

TEST(Recipe, EverythingElseCounts) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(change("optimizer.lr=0.01"), Lines{"optimizer.lr: 0.001 -> 0.01"});
  EXPECT_EQ(change("model.channels=[8]"), Lines{"model.channels: [32, 64] -> [8]"});
  EXPECT_EQ(change("seed=1"), Lines{"seed: 0 -> 1"});
  EXPECT_EQ(change("cpu_isa=avx2"), Lines{"cpu_isa: auto -> avx2"});
  EXPECT_EQ(change("data.train.size=90%"), Lines{"data.train.size: (not given) -> 90%"});
  EXPECT_EQ(change("data.shuffle=false"), Lines{"data.shuffle: true -> false"});
  EXPECT_EQ(change("init.from=w"), Lines{"init.from: none -> given"});
  EXPECT_EQ(change("train.clip_norm=1"), Lines{"train.clip_norm: 0 -> 1"});
  EXPECT_EQ(change("train.steps=9"),
            (Lines{"train.steps: (not given) -> 9", "train.epochs: 1 -> (not given)"}));
  EXPECT_EQ(change("parallel.reduction=fast"), Lines{"parallel.reduction: reproducible -> fast"});
  EXPECT_EQ(change("parallel.threads_per_virtual_rank=2"),
            Lines{"parallel.threads_per_virtual_rank: 1 -> 2"});
  EXPECT_EQ(change("parallel.virtual_ranks=4"),
            (Lines{"batch.accumulate: 1 -> 2", "parallel.virtual_ranks: 8 -> 4"}));
  EXPECT_EQ(change("data.on_bad_sample=skip"), Lines{"data.on_bad_sample: stop -> skip"});
  EXPECT_EQ(change("schedule=cosine").size(), 2U);  // name and min_lr
  EXPECT_EQ(change("loss=mse").size(), 4U);         // name, and three keys that mse lacks
  EXPECT_GE(change("model={name: mlp, inputs: 4, outputs: 2}").size(), 5U);
}

TEST(Recipe, EarlyStoppingMakesTheTimeOfEvaluationsCount) {
  const std::string yaml = std::string(kMnist) + "train: {early_stop_patience: 3}\n";
  EXPECT_EQ(recipe_differences(read(yaml).values, read(yaml, {"validation.every_steps=5"}).values),
            std::vector<std::string>{"validation.every_steps: 0 -> 5"});
}

TEST(Recipe, YamlHoldsEveryValueAndItsOrigin) {
  const Config config = read("optimizer:\n  lr: 5e-2\n", {"seed=3"});
  const std::string yaml = to_yaml(config, known_kinds());
  EXPECT_NE(yaml.find("\noptimizer:\n  name: sgd\n  lr: 0.05  # c.yaml:2\n  momentum: 0\n"),
            std::string::npos)
      << yaml;
  EXPECT_NE(yaml.find("\nseed: 3  # command line\n"), std::string::npos);
  EXPECT_NE(yaml.find("\n  virtual_ranks: 8  # derived\n"), std::string::npos);
  EXPECT_NE(yaml.find("\n  cores: auto\n"), std::string::npos);
  EXPECT_NE(yaml.find("\n  channels: [32, 64]\n"), std::string::npos);
  EXPECT_EQ(yaml.find("betas"), std::string::npos);  // sgd has none
}

TEST(Recipe, OddTextSurvives) {
  const std::string odd = "a: b # \"c\" 'd' \\ \xC3\xA9\t* & | 010 \x01";
  Config config = read("");
  config.values.set_output("/" + odd);
  config.source = "evil\nseed: 9";
  const Config again =
      parse_config(to_yaml(config, known_kinds()), "d.yaml", "/elsewhere", {}, known_kinds());
  EXPECT_EQ(again.values.output(), "/" + odd);
  EXPECT_EQ(again.values.seed(), 0U);
  for (const char* word : {"null", "~", "true", "1e3", "-", "a b", "{", "yes", "0x1"}) {
    config = read("data: {train: {kind: csv, path: p, features: [\"" + std::string(word) +
                  "\"], targets: [t]}}\n");
    const Config back =
        parse_config(to_yaml(config, known_kinds()), "d.yaml", "/x", {}, known_kinds());
    EXPECT_EQ(unpack<config::Csv>(back.values.data().train().options()).features(0), word);
  }
}

}  // namespace
}  // namespace dtrain::testing
