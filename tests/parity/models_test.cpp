// Ten training steps of every model against the losses of its twin in PyTorch, from the same
// weights: see model_values.py.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "dtrain/core/checkpoint/safetensors.h"
#include "dtrain/parallel/train/plan.h"
#include "dtrain/tests/parity/values.h"
#include "dtrain/tests/support/training.h"

namespace dtrain::parity {
namespace {

using nlohmann::json;

// The samples that both sides make: images with a label, or tokens with the next ones.
class HashedData final : public Dataset {
 public:
  explicit HashedData(const KindValues& values) {
    spec_.classes = values.integer("classes");
    if (values.integer("tokens") > 0) {
      spec_.input = {DType::i32, Shape{values.integer("tokens")}};
      spec_.target = {DType::i64, Shape{values.integer("tokens")}};
    } else {
      spec_.input = {DType::f32, Shape{values.integer("height"), values.integer("width"),
                                       values.integer("channels")}};
      spec_.target = {DType::i64, Shape{}};
    }
  }

  std::int64_t size() const override { return 4096; }
  const SampleSpec& spec() const override { return spec_; }
  std::string origin(std::int64_t index) const override { return fmt::format("hashed {}", index); }
  std::string identity() const override { return "hashed"; }

  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    const auto count = static_cast<std::size_t>(spec_.input.shape.elements());
    const auto sample = static_cast<std::uint32_t>(index);
    if (spec_.input.dtype == DType::f32) {
      for (std::size_t i = 0; i < count; ++i) {
        put(input, i, hashed(static_cast<std::uint32_t>(sample * count + i), 1));
      }
      put(target, 0, hashed_integer(sample, 2, spec_.classes));
      return;
    }
    for (std::size_t i = 0; i <= count; ++i) {
      const std::int64_t token =
          hashed_integer(static_cast<std::uint32_t>(sample * (count + 1) + i), 1, spec_.classes);
      if (i < count) put(input, i, static_cast<std::int32_t>(token));
      if (i > 0) put(target, i - 1, token);
    }
  }

 private:
  template <typename T>
  static void put(std::span<std::byte> bytes, std::size_t index, T value) {
    std::memcpy(bytes.subspan(index * sizeof(T)).data(), &value, sizeof(T));
  }
  SampleSpec spec_;
};

Registry registry_with_hashed_data() {
  Registry registry = builtin_registry();
  KindSchema schema("hashed");
  schema.integer("height", 0, "of an image")
      .integer("width", 0, "of an image")
      .integer("channels", 0, "of an image")
      .integer("tokens", 0, "of a sample of tokens")
      .integer("classes", 0, "labels, or the vocabulary");
  registry.datasets.add(
      schema, [](const KindValues& values) { return std::make_unique<HashedData>(values); });
  return registry;
}

// The recipe of a case, whose steps take one virtual rank and one micro-batch: what batch norm sees
// is the whole batch, as in PyTorch.
std::string recipe_of(const json& one) {
  const json& data = one.at("data");
  std::string shape;
  if (data.contains("tokens")) {
    shape = fmt::format("tokens: {}", data.at("tokens").get<int>());
  } else {
    shape = fmt::format("height: {}, width: {}, channels: {}", data.at("image")[0].get<int>(),
                        data.at("image")[1].get<int>(), data.at("image")[2].get<int>());
  }
  return fmt::format(
      "{}\ndata: {{train: {{kind: hashed, {}, classes: {}}}, shuffle: false}}\n"
      "batch: {{global: {}, micro: {}}}\ntrain: {{steps: {}}}\ncheckpoint: {{every_steps: 0}}\n",
      one.at("recipe").get<std::string>(), shape, data.at("classes").get<int>(),
      one.at("batch").get<int>(), one.at("batch").get<int>(), one.at("losses").size());
}

// The weights of model_values.rule_weights, for a model too large for a file in the tree.
void write_rule_weights(const std::string& recipe, const Registry& registry,
                        const std::filesystem::path& path) {
  const Config config = parse_config(recipe, "test.yaml", ".", {}, registry.kinds());
  const RunPlan plan = make_plan(config, registry, 1, 1);
  std::map<std::string, std::pair<Shape, std::vector<float>>> tensors;
  for (const Parameter* p : plan.layout->parameters()) tensors[p->name].first = p->shape;
  std::uint32_t seed = 1000;
  for (auto& [name, tensor] : tensors) {
    auto& [shape, values] = tensor;
    values = hashed_values(shape.elements(), seed++);
    const double fan_in = static_cast<double>(shape.elements()) / static_cast<double>(shape[0]);
    const float bound = std::sqrt(3.0F / static_cast<float>(fan_in));
    for (float& value : values) {
      if (shape.rank() > 1) {
        value *= bound;
      } else {
        value = value * 0.125F + (name.ends_with("weight") ? 1.0F : 0.0F);
        if (name.ends_with("bn2.weight")) value *= 0.25F;
      }
    }
  }
  for (const Buffer* b : plan.layout->buffers()) {
    tensors[b->name] = {b->shape, std::vector<float>(b->shape.elements(), b->initial)};
  }
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) {
    named.push_back(
        {name, DType::f32, tensor.first, std::as_bytes(std::span<const float>(tensor.second))});
  }
  write_safetensors(path, named);
}

TEST(Models, TenStepLossesMatchPyTorch) {
  const Registry registry = registry_with_hashed_data();
  const json values = read("models.json");
  ASSERT_GE(values.at("models").size(), 4U);
  for (const json& one : values.at("models")) {
    const std::string name = one.at("name");
    SCOPED_TRACE(name);
    const TemporaryDirectory folder;
    const std::string recipe = recipe_of(one);
    std::string weights = one.at("weights");
    if (weights.empty()) {
      weights = (folder.path() / "weights.safetensors").string();
      write_rule_weights(recipe, registry, weights);
    } else {
      weights = path_of(weights);
    }
    const test::TrainingRun run = test::train_threads(recipe, 1, folder.path() / "run",
                                                      {"init.from=" + weights}, {}, registry);
    const std::vector<double> losses = run.steps("loss");
    const std::vector<double> expected = one.at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), expected.size());
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      difference = std::max(difference, std::abs(losses[i] - expected[i]));
    }
    EXPECT_LE(difference / largest, 1e-4);
    RecordProperty(name, fmt::format("{:.1e}", difference / largest));
    fmt::print("{}: losses differ by {:.1e}\n", name, difference / largest);
  }
}

}  // namespace
}  // namespace dtrain::parity
