// dtrain with a data set that has a bad sample, or one that nobody can finish reading; and models
// that differ between ranks, or have a layer that the loss does not depend on.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "dtrain/core/base/error.h"
#include "dtrain/core/nn/layers.h"
#include "dtrain/launcher/main.h"

namespace {

class Trouble : public dtrain::Dataset {
 public:
  explicit Trouble(const dtrain::KindValues& values)
      : bad_(values.integers("bad")),
        blocked_(values.integers("blocked")),
        seconds_(values.number("seconds")) {
    spec_.input = {dtrain::DType::f32, dtrain::Shape{4}};
    spec_.target = {dtrain::DType::i64, dtrain::Shape{}};
    spec_.classes = 4;
  }
  std::int64_t size() const override { return 64; }
  const dtrain::SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    if (std::ranges::count(bad_, index) > 0) {
      throw dtrain::DataError("/pictures/trouble.bin", index, "the file is empty");
    }
    if (std::ranges::count(blocked_, index) > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    }
    const std::int64_t label = index % 4;
    float values[4] = {0.1F, 0.2F, 0.3F, static_cast<float>(index) / 64};
    values[label] += 1;
    std::memcpy(input.data(), values, sizeof(values));
    std::memcpy(target.data(), &label, sizeof(label));
  }
  std::string origin(std::int64_t index) const override {
    return "/pictures/trouble.bin: record " + std::to_string(index);
  }
  std::string identity() const override { return "trouble"; }

 private:
  std::vector<std::int64_t> bad_, blocked_;
  double seconds_;
  dtrain::SampleSpec spec_;
};

std::int64_t own_rank() {
  const char* text = std::getenv("RANK");
  return text == nullptr ? 0 : std::atoll(text);
}

class TwoHeads : public dtrain::Module {
 public:
  TwoHeads(const dtrain::ModelInput& input, std::int64_t width)
      : body_(add<dtrain::Linear>("body", input.shape.elements(), width)),
        head_(add<dtrain::Linear>("head", width, input.classes)) {
    add<dtrain::Linear>("head2", width, input.classes);
  }
  dtrain::Value forward(dtrain::Pass& pass, const dtrain::Value& x) const override {
    return head_.forward(pass, dtrain::functions::relu(pass, body_.forward(pass, x)));
  }

 private:
  const dtrain::Linear& body_;
  const dtrain::Linear& head_;
};

}  // namespace

int main(int argc, char** argv) {
  dtrain::Registry registry = dtrain::builtin_registry();
  dtrain::KindSchema schema("trouble");
  schema.integers("bad", std::vector<std::int64_t>{}, "samples that cannot be used")
      .integers("blocked", std::vector<std::int64_t>{}, "samples whose reading takes `seconds`")
      .number("seconds", 60, "how long reading a blocked sample takes");
  registry.datasets.add(
      schema, [](const dtrain::KindValues& values) { return std::make_unique<Trouble>(values); });
  dtrain::KindSchema heads("two_heads");
  heads.integer("wider_on_rank", 99, "rank whose model has one unit more");
  registry.models.add(heads, [](const dtrain::KindValues& values, const dtrain::ModelInput& input) {
    return std::make_unique<TwoHeads>(input, values.integer("wider_on_rank") == own_rank() ? 9 : 8);
  });
  return dtrain::run_main(argc, argv, registry);
}
