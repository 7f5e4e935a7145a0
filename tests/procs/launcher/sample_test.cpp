// `dtrain sample` as a user would run it.
#include <fstream>

#include "program.h"
#include <gtest/gtest.h>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class Sample : public testing::Test {
 protected:
  Sample() {
    // A text that a small model soon knows by heart.
    std::ofstream text(folder_.path() / "input.txt");
    for (int i = 0; i < 400; ++i) text << "abcdefgh\n";
    text.close();
    std::ofstream(config()) << "output: " << output().string() << R"(
model: {name: gpt, layers: 1, width: 32, heads: 2, context: 18, vocabulary: 256}
data: {train: {kind: text, path: input.txt, stride: 1}}
batch: {global: 16, micro: 8}
optimizer: {name: adamw, lr: 0.01}
train: {steps: 120}
)";
  }
  fs::path config() const { return folder_.path() / "c.yaml"; }
  fs::path output() const { return folder_.path() / "run"; }
  Outcome sample(std::vector<std::string> options) const {
    options.insert(options.begin(), {"sample", config()});
    return run_dtrain(options);
  }
  void train() const {
    const Outcome trained = run_dtrain({config()});
    ASSERT_EQ(trained.code, 0) << trained.error;
  }
  TemporaryDirectory folder_;
};

TEST_F(Sample, WritesWhatTheModelLearned) {
  train();
  const Outcome likeliest = sample({"--prompt", "abc", "--tokens", "23", "--temperature", "0"});
  EXPECT_EQ(likeliest.code, 0) << likeliest.error;
  EXPECT_EQ(likeliest.output, "abcdefgh\nabcdefgh\nabcdefgh\n");
  // A prompt longer than the context is written whole; the model sees its end.
  const std::string prompt = "zzzzzzzzzzzzzzzzzzabcdefgh\nabcdefgh\nabcd";
  const Outcome from_long = sample({"--prompt", prompt, "--tokens", "4", "--temperature", "0"});
  EXPECT_EQ(from_long.output, prompt + "efgh\n");
  EXPECT_NE(from_long.error.find("the prompt has 40 tokens: the model sees the last 18"),
            std::string::npos)
      << from_long.error;
  // The data is not needed; a checkpoint or a file may be named instead of the output folder.
  fs::remove(folder_.path() / "input.txt");
  fs::rename(output(), folder_.path() / "moved");
  const fs::path weights = folder_.path() / "moved/checkpoints/step-00000120/model.safetensors";
  for (const std::vector<std::string>& where :
       {std::vector<std::string>{"--weights", folder_.path() / "moved"},
        std::vector<std::string>{"init.from=" + weights.string()}}) {
    std::vector<std::string> options = {"--prompt", "abc", "--tokens", "23", "--temperature", "0"};
    options.insert(options.end(), where.begin(), where.end());
    EXPECT_EQ(sample(options).output, likeliest.output);
  }
}

TEST_F(Sample, IsAFunctionOfTheSeed) {
  train();
  const auto text = [&](const std::string& seed) {
    return sample({"--tokens", "100", "--temperature", "3", "--top-k", "20", "--seed", seed})
        .output;
  };
  const std::string first = text("1");
  EXPECT_EQ(first.size(), 102U);  // the prompt is an empty line
  EXPECT_EQ(text("1"), first);
  EXPECT_NE(text("2"), first);
}

TEST_F(Sample, SaysWhatIsMissingOrWrong) {
  const auto expect_error = [&](const std::vector<std::string>& options, const std::string& text) {
    const Outcome outcome = sample(options);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.output, "");
    EXPECT_NE(outcome.error.find(text), std::string::npos) << outcome.error;
  };
  expect_error({}, "there is no checkpoint to sample from: train the recipe first");
  expect_error({"--weights", folder_.path() / "none"}, "none");
  expect_error({"--prompt", ""}, "--prompt: the value is empty");
  expect_error({"--tokens", "0"}, "--tokens");
  expect_error({"--temperature", "-1"}, "--temperature");
  expect_error({"--prompt", "caf\xC3\xA9", "model.vocabulary=128"},
               "--prompt: byte 195 at 3 is not one of the model's 128 tokens");
  expect_error({"--prompt", "12 x", "model.vocabulary=300"},
               "--prompt: 'x' is not a token from 0 to 299");
}

}  // namespace
}  // namespace dtrain
