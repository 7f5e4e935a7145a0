// Training on text and tokens: what is counted, that placement changes no bit, and what is said
// about a token that cannot be.
#include <cmath>
#include <fstream>
#include <numbers>

#include "training.h"
#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain::test {
namespace {

class Tokens : public testing::Test {
 protected:
  std::filesystem::path folder(const std::string& name) const { return folder_.path() / name; }
  std::string text_recipe() const {
    const auto path = folder("text");
    std::string text;
    for (int i = 0; text.size() < 3000; ++i) text += fmt::format("line {} of {}\n", i, i * i % 97);
    std::ofstream(path) << text;
    return fmt::format(R"(
model: {{name: gpt, layers: 1, width: 16, heads: 2, context: 12, vocabulary: 256, dropout: 0.1}}
data:
  train: {{kind: text, path: {0}, size: 90%, stride: 5}}
  validation: {{kind: text, path: {0}, offset: 90%}}
batch: {{global: 24, micro: 2}}
optimizer: {{name: adamw, lr: 0.01}}
train: {{steps: 6, ema_decay: 0.5}}
checkpoint: {{every_steps: 2, keep_last: 9}}
parallel: {{virtual_ranks: 4}}
)",
                       path.string());
  }
  // 70,000 tokens of 16 bits, of which the bad one stands behind those that are looked at first.
  std::string token_recipe(std::size_t bad) const {
    std::vector<std::uint16_t> tokens(70000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i % 60);
    tokens[bad] = 64;
    std::ofstream(folder("tokens.bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * sizeof tokens[0]));
    return fmt::format(R"(
model: {{name: gpt, layers: 1, width: 8, heads: 1, context: 8, vocabulary: 64}}
data:
  train: {{kind: tokens, path: {}, offset: 8600}}
  shuffle: false
batch: {{global: 16, micro: 4}}
train: {{epochs: 1}}
)",
                       folder("tokens.bin").string());
  }
  TemporaryDirectory folder_;
};

TEST_F(Tokens, FiguresAreOfTargetsNotSamples) {
  const TrainingRun run = train_threads(text_recipe(), 2, folder("run"));
  // Of 256 equal chances, nearly.
  EXPECT_NEAR(run.steps("loss")[0], std::log(256.0), 0.3);
  ASSERT_EQ(run.events("evaluation").size(), 1U);
  for (const nlohmann::json& figures :
       {run.events("evaluation")[0], nlohmann::json(run.result.summary.at("validation")),
        nlohmann::json(run.result.summary.at("best"))}) {
    const double loss = figures.at("loss");
    EXPECT_EQ(figures.at("targets").get<int>(), 12 * figures.at("samples").get<int>());
    EXPECT_DOUBLE_EQ(figures.at("perplexity"), std::exp(loss));
    EXPECT_DOUBLE_EQ(figures.at("bits_per_byte"), loss / std::numbers::ln2);
  }
  // Overlapping windows: more samples than would lie side by side.
  EXPECT_GT(run.result.summary.at("samples_seen"), 100);
}

TEST_F(Tokens, ASmoothedLossHasNoPerplexity) {
  const TrainingRun run =
      train_threads(text_recipe(), 1, folder("run"), {"loss.label_smoothing=0.1"});
  EXPECT_FALSE(run.events("evaluation")[0].contains("perplexity"));
  EXPECT_TRUE(run.events("evaluation")[0].contains("targets"));
}

TEST_F(Tokens, AnyNumberOfRanksGivesTheSameBitsResumedToo) {
  const std::string recipe = text_recipe();
  const TrainingRun one = train_threads(recipe, 1, folder("one"));
  for (const int ranks : {2, 3, 4}) {
    const TrainingRun many = train_threads(recipe, ranks, folder(std::to_string(ranks)));
    EXPECT_EQ(many.digest(), one.digest()) << ranks;
    EXPECT_EQ(many.result.summary.at("validation"), one.result.summary.at("validation"));
  }
  const auto out = folder("cut");
  train_threads(recipe, 4, out);
  for (const int step : {4, 6}) {
    std::filesystem::remove_all(out / "checkpoints" / fmt::format("step-{:08}", step));
  }
  std::filesystem::remove(out / "summary.json");
  const TrainingRun rest = train_threads(recipe, 2, out, {}, {.resume = true});
  EXPECT_EQ(rest.digest(), one.digest());
  EXPECT_TRUE(text_of(out / "checkpoints/step-00000006/ema.safetensors") ==
              text_of(folder("one") / "checkpoints/step-00000006/ema.safetensors"));
}

// Found when its window is read: it stands behind what is looked at when a file is opened.
TEST_F(Tokens, ATokenOutsideTheVocabularyStopsTheRunOrIsSkipped) {
  const std::string recipe = token_recipe(68900);
  try {
    train_threads(recipe, 2, folder("run"));
    FAIL() << "no error";
  } catch (const Error& error) {  // of the rank that met it, or of one that was told
    EXPECT_TRUE(std::string(error.what())
                    .ends_with(folder("tokens.bin").string() +
                               ": record 68900: token 64, but the vocabulary has 64 (ids 0 to 63)"))
        << error.what();
  }
  const TrainingRun skipped =
      train_threads(recipe, 2, folder("skipped"), {"data.on_bad_sample=skip"});
  EXPECT_EQ(skipped.result.summary.at("skipped_samples").at("count"), 1);
  EXPECT_EQ(skipped.result.summary.at("samples_seen"), 8749 - 8600 - 1);
}

}  // namespace
}  // namespace dtrain::test
