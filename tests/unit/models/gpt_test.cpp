// GPT-2: its parameters, its messages, and the files of Hugging Face's GPT-2, whose values
// tests/parity/gpt2_values.py made.
#include "dtrain/models/gpt.h"

#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/loss.h"
#include "dtrain/core/optim/optimizer.h"
#include "dtrain/tests/parity/values.h"

namespace dtrain {
namespace {
namespace fs = std::filesystem;

config::Gpt gpt_options(int layers, int width, int heads, int context, int vocabulary) {
  config::Gpt options;
  options.set_layers(layers);
  options.set_width(width);
  options.set_heads(heads);
  options.set_context(context);
  options.set_vocabulary(vocabulary);
  return options;
}

ModelInput tokens(std::int64_t length, std::int64_t vocabulary) {
  return {.shape = {length}, .classes = vocabulary, .dtype = DType::i32};
}

std::string config_error(const config::Gpt& options, const ModelInput& input) {
  try {
    Gpt model(options, input);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(GptModel, ParametersAreNamedAndShapedAsHuggingFacesGpt2) {
  Gpt model(gpt_options(1, 8, 2, 5, 11), tokens(5, 11));
  const ArenaLayout layout(model);
  std::vector<std::string> names;
  for (auto it = layout.parameters().rbegin(); it != layout.parameters().rend(); ++it) {
    names.push_back((*it)->name + " " + to_string((*it)->shape));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "wte.weight [11, 8]", "wpe.weight [5, 8]", "h.0.ln_1.weight [8]",
                "h.0.ln_1.bias [8]", "h.0.attn.c_attn.weight [8, 24]", "h.0.attn.c_attn.bias [24]",
                "h.0.attn.c_proj.weight [8, 8]", "h.0.attn.c_proj.bias [8]", "h.0.ln_2.weight [8]",
                "h.0.ln_2.bias [8]", "h.0.mlp.c_fc.weight [8, 32]", "h.0.mlp.c_fc.bias [32]",
                "h.0.mlp.c_proj.weight [32, 8]", "h.0.mlp.c_proj.bias [8]", "ln_f.weight [8]",
                "ln_f.bias [8]"}));
}

TEST(GptModel, Gpt2SmallHas124MillionParameters) {
  config::Gpt options;
  Gpt model(options, tokens(1024, 50257));
  EXPECT_EQ(ArenaLayout(model).parameter_count(), 124439808);
}

TEST(GptModel, InitialWeightsAreGpt2s) {
  Gpt model(gpt_options(8, 64, 2, 16, 50), tokens(16, 50));
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  initialize(arena, RandomKey(1));
  for (const Parameter* p : layout.parameters()) {
    SCOPED_TRACE(p->name);
    double sum = 0, squares = 0;
    for (const float value : arena.weight(*p)) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto n = static_cast<double>(p->elements());
    if (p->name.ends_with("bias")) {
      EXPECT_EQ(squares, 0);
    } else if (p->name.find("ln_") != std::string::npos) {
      EXPECT_EQ(sum, n);
    } else {
      const double expected = p->name.find("c_proj") != std::string::npos ? 0.02 / 4 : 0.02;
      EXPECT_NEAR(std::sqrt(squares / n), expected, 0.1 * expected);
      EXPECT_NEAR(sum / n, 0, 5 * expected / std::sqrt(n));
    }
  }
}

TEST(GptModel, SaysWhatDoesNotFit) {
  EXPECT_EQ(config_error(gpt_options(1, 8, 2, 5, 11), {.shape = {28, 28, 1}, .classes = 10}),
            "model.name: gpt wants sequences of tokens, but the data's samples are f32 [28, 28, "
            "1]: use data of kind text or tokens");
  EXPECT_EQ(config_error(gpt_options(1, 8, 3, 5, 11), tokens(5, 11)),
            "model.heads: 3 heads do not divide the width of 8");
  EXPECT_EQ(
      config_error(gpt_options(1, 8, 2, 4, 11), tokens(5, 11)),
      "model.context: 4 is less than the 5 tokens of the data's samples: they must be at most "
      "as long");
  EXPECT_EQ(config_error(gpt_options(1, 8, 2, 5, 10), tokens(5, 11)),
            "model.vocabulary: 10 is less than the 11 tokens that the data has");
}

// The small random GPT-2 of the parity files.
class HuggingFace : public testing::Test {
 protected:
  HuggingFace()
      : model_(gpt_options(values_["layers"], values_["width"], values_["heads"],
                           values_["context"], values_["vocabulary"]),
               tokens(values_["context"], values_["vocabulary"])),
        layout_(model_),
        arena_(layout_),
        gradients_(static_cast<std::size_t>(layout_.gradient_elements())) {
    context_.bind_to_this_thread();
  }
  void TearDown() override { fs::remove_all(folder_); }

  int load(const fs::path& path, bool strict = true) {
    std::vector<TensorTarget> targets;
    for (const Parameter* p : layout_.parameters()) {
      targets.push_back({p->name, DType::f32, p->shape, std::as_writable_bytes(arena_.weight(*p))});
    }
    return load_tensors(path, targets, strict,
                        [&](std::string_view name) { return layout_.name_in_model(name); });
  }

  // Inputs [N, T] and targets [N, T] of a step.
  std::pair<Tensor, Tensor> batch(std::size_t step) {
    const std::int64_t samples = values_["samples"], length = values_["context"];
    const Tensor x = Tensor::empty({samples, length}, DType::i32, allocator_, "test");
    const Tensor y = Tensor::empty({samples, length}, DType::i64, allocator_, "test");
    for (std::int64_t n = 0; n < samples; ++n) {
      for (std::int64_t t = 0; t < length; ++t) {
        const auto at = static_cast<std::size_t>(n * (length + 1) + t);
        x.data<std::int32_t>()[n * length + t] = values_["tokens"][step][at];
        y.data<std::int64_t>()[n * length + t] = values_["tokens"][step][at + 1];
      }
    }
    return {x, y};
  }

  PassMemory memory() {
    return {.weights = std::as_const(arena_).weights(),
            .buffers = {},
            .gradients = gradients_,
            .parameters = layout_.parameters()};
  }

  static void expect_close(std::span<const float> actual, const nlohmann::json& expected,
                           double tolerance) {
    const std::vector<float> values = parity::floats(expected);
    ASSERT_EQ(actual.size(), values.size());
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference = std::max(difference, std::abs(static_cast<double>(actual[i]) - values[i]));
      largest = std::max(largest, std::abs(static_cast<double>(values[i])));
    }
    EXPECT_LE(difference, tolerance * largest);
  }

  void expect_its_logits() {
    Pass pass(context_, memory(), {.training = false});
    const Value y = model_.forward(pass, pass.input(batch(0).first));
    expect_close(y.tensor.values<float>(), values_["logits"], 1e-5);
  }

  // The tensors of Hugging Face's file under changed names, with others.
  fs::path rewrite(const std::function<std::string(std::string)>& name,
                   std::vector<NamedTensor> others = {}) {
    const SafetensorsFile file(file_);
    std::vector<std::vector<std::byte>> bytes;
    for (const TensorEntry& entry : file.entries()) {
      bytes.emplace_back(entry.end - entry.begin);
      file.read(entry, bytes.back());
      others.push_back({name(entry.name), entry.dtype, entry.shape, bytes.back()});
    }
    fs::create_directories(folder_);
    write_safetensors(folder_ / "model.safetensors", others);
    return folder_ / "model.safetensors";
  }

  const fs::path file_ = fs::path(DTRAIN_SOURCE_DIR) / "tests/parity/gpt2_tiny.safetensors";
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("gpt_test_{}", ::getpid());
  const nlohmann::json values_ = parity::read("gpt2_tiny.json");
  Gpt model_;
  ArenaLayout layout_;
  ParameterArena arena_;
  std::vector<float> gradients_;
  Allocator allocator_{"test"};
  OpContext context_{allocator_, 1};
};

TEST_F(HuggingFace, AFileOfTransformersLoadsAndGivesTheSameLogits) {
  EXPECT_EQ(load(file_), 28);
  expect_its_logits();
}

std::string without_prefix(std::string name) {
  return name.substr(std::string("transformer.").size());
}

// As GPT-2 was first published: no prefix, and the causal masks among the weights.
TEST_F(HuggingFace, AFileWithMasksAndWithoutPrefixLoads) {
  const std::vector<float> mask(16 * 16, 1);
  const float masked = -1e4F;
  const fs::path path =
      rewrite(without_prefix,
              {{"h.0.attn.bias", DType::f32, {1, 1, 16, 16}, std::as_bytes(std::span(mask))},
               {"h.1.attn.masked_bias", DType::f32, {}, std::as_bytes(std::span(&masked, 1))}});
  EXPECT_EQ(load(path), 28);
  expect_its_logits();
}

TEST_F(HuggingFace, AHeadThatIsTheEmbeddingLoadsAndAnotherIsAnError) {
  const SafetensorsFile file(file_);
  const TensorEntry& entry = *file.find("transformer.wte.weight");
  std::vector<std::byte> head(entry.end - entry.begin);
  file.read(entry, head);
  const auto keep = [](std::string name) { return name; };
  const NamedTensor tensor{"lm_head.weight", DType::f32, entry.shape, head};
  EXPECT_EQ(load(rewrite(keep, {tensor})), 28);
  expect_its_logits();
  head[5] ^= std::byte{1};
  const fs::path path = rewrite(keep, {tensor});
  for (const bool strict : {true, false}) {
    try {
      load(path, strict);
      FAIL() << "the model has one tensor for both";
    } catch (const CheckpointError& e) {
      EXPECT_NE(std::string(e.what()).find("differ, but the model ties them: they are one tensor"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST_F(HuggingFace, AFileOfAnotherSizeSaysWhatDiffers) {
  Gpt other(gpt_options(2, 24, 3, 8, 50), tokens(8, 50));
  const ArenaLayout layout(other);
  std::vector<TensorTarget> targets;
  for (const Parameter* p : layout.parameters()) {
    targets.push_back({p->name, DType::f32, p->shape, {}});
  }
  try {
    check_tensors(file_, targets, true,
                  [&](std::string_view name) { return layout.name_in_model(name); });
    FAIL();
  } catch (const CheckpointError& e) {
    EXPECT_NE(std::string(e.what()).find("'wpe.weight': file f32 [16, 24], model f32 [8, 24]"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(HuggingFace, TenStepsHaveTheSameLosses) {
  load(file_);
  const auto loss = make_loss({});
  config::Optimizer options;
  options.set_name("adamw");
  options.set_lr(values_["optimizer"]["lr"]);
  options.set_weight_decay(values_["optimizer"]["weight_decay"]);
  options.add_betas(0.9);
  options.add_betas(0.999);
  const auto optimizer = make_optimizer(options);
  std::vector<FloatBlock> state;
  for (std::size_t i = 0; i < optimizer->state_names().size(); ++i) {
    state.emplace_back(layout_.weight_elements());
  }
  ThreadPool pool(1);
  const std::vector<ParameterSegment> segments = {
      {0, layout_.weight_elements(), options.weight_decay()}};
  ASSERT_EQ(values_["losses"].size(), 10U);
  for (std::size_t step = 0; step < 10; ++step) {
    const auto [x, y] = batch(step);
    Pass pass(context_, memory(), {.training = true});
    Value logits = model_.forward(pass, pass.input(x));
    const ops::LossSums sums = loss->forward(context_, logits.tensor, y).sums;
    const double expected = values_["losses"][step];
    EXPECT_NEAR(sums.loss / sums.weight, expected, 1e-4 * expected) << "step " << step;
    const float seed = 1.0F / static_cast<float>(sums.weight);
    Tensor gradient = loss->backward(context_, std::move(logits.tensor), y, seed);
    pass.backward(logits, std::move(gradient));
    if (step == 0) {
      for (const Parameter* p : layout_.parameters()) {
        const auto given = values_["gradients"].find("transformer." + p->name);
        if (given == values_["gradients"].end()) continue;
        SCOPED_TRACE(p->name);
        expect_close(std::span(gradients_).subspan(p->offset, p->elements()), *given, 2e-5);
      }
    }
    std::vector<std::span<float>> of_state;
    for (FloatBlock& block : state) of_state.push_back(block.values());
    StepScalars scalars;
    scalars.step = static_cast<std::int64_t>(step);
    scalars.lr = static_cast<float>(options.lr());
    optimizer->step(arena_.weights(),
                    std::span<const float>(gradients_).first(arena_.weights().size()), of_state,
                    segments, scalars, pool);
  }
}

}  // namespace
}  // namespace dtrain
