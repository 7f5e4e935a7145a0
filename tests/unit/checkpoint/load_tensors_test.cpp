#include "checkpoint_testing.h"

namespace dtrain {
namespace {

// A model of named float tensors, all -1 until loaded.
class Model {
 public:
  explicit Model(std::vector<std::pair<std::string, Shape>> layout) {
    for (auto& [name, shape] : layout) {
      values_.emplace_back(static_cast<std::size_t>(shape.elements()), -1.0f);
      names_.push_back(name);
      shapes_.push_back(shape);
    }
  }
  std::vector<TensorTarget> targets() {
    std::vector<TensorTarget> targets;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      targets.push_back(
          {names_[i], DType::f32, shapes_[i], std::as_writable_bytes(std::span(values_[i]))});
    }
    return targets;
  }
  const std::vector<float>& operator[](std::size_t i) const { return values_[i]; }

 private:
  std::vector<std::string> names_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<float>> values_;
};

class LoadTensors : public testing::Test {
 protected:
  void write(std::vector<std::pair<std::string, Shape>> layout) {
    std::vector<std::vector<float>> values;
    std::vector<NamedTensor> tensors;
    for (auto& [name, shape] : layout) {
      values.emplace_back(static_cast<std::size_t>(shape.elements()),
                          static_cast<float>(values.size()));
    }
    for (std::size_t i = 0; i < layout.size(); ++i) {
      tensors.push_back(
          {layout[i].first, DType::f32, layout[i].second, std::as_bytes(std::span(values[i]))});
    }
    write_safetensors(path_, tensors);
  }

  TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_.path() / "w.safetensors";
};

TEST_F(LoadTensors, AllMatch) {
  write({{"a", Shape{2}}, {"b", Shape{2, 3}}});
  Model model({{"b", Shape{2, 3}}, {"a", Shape{2}}});
  LogCapture log;
  EXPECT_EQ(load_tensors(path_, model.targets(), true), 2);
  EXPECT_EQ(model[0], std::vector<float>(6, 1));
  EXPECT_EQ(model[1], std::vector<float>(2, 0));
  EXPECT_EQ(log.text(), "");
}

TEST_F(LoadTensors, OneOfEachMismatchIsOneMessage) {
  write({{"a", Shape{2}}, {"extra", Shape{1}}, {"head.weight", Shape{10, 32}}});
  Model model({{"a", Shape{2}}, {"lost", Shape{4}}, {"head.weight", Shape{12, 32}}});
  const std::string differences =
      "1 missing ('lost'), 1 unexpected ('extra'), 1 shape mismatch ('head.weight': file f32 "
      "[10, 32], model f32 [12, 32])";
  EXPECT_EQ(checkpoint_error_of([&] { load_tensors(path_, model.targets(), true); }),
            path_.string() + ": tensors do not match the model: " + differences +
                "; strict: false loads the 1 that match");
  EXPECT_EQ(model[0], std::vector<float>(2, -1));  // nothing was touched

  LogCapture log;
  EXPECT_EQ(load_tensors(path_, model.targets(), false), 1);
  EXPECT_EQ(model[0], std::vector<float>(2, 0));
  EXPECT_EQ(model[1], std::vector<float>(4, -1));
  EXPECT_EQ(log.text(), "warning: " + path_.string() +
                            ": loaded 1 of 3 tensors; the rest keep their initial values: " +
                            differences + "\n");
}

TEST_F(LoadTensors, ManyNamesAreCountedAndFewListed) {
  std::vector<std::pair<std::string, Shape>> layout;
  for (int i = 0; i < 8; ++i) layout.push_back({fmt::format("n{}", i), Shape{1}});
  write({{"z", Shape{1}}});
  layout.push_back({"z", Shape{1}});
  Model model(layout);
  EXPECT_NE(checkpoint_error_of([&] {
              load_tensors(path_, model.targets(), true);
            }).find("8 missing ('n0', 'n1', 'n2', 'n3', 'n4', and 3 more), 0 unexpected"),
            std::string::npos);
}

TEST_F(LoadTensors, NothingMatchesIsAlwaysAnError) {
  write({{"x", Shape{2}}});
  Model model({{"a", Shape{2}}});
  for (bool strict : {true, false}) {
    EXPECT_EQ(checkpoint_error_of([&] { load_tensors(path_, model.targets(), strict); }),
              path_.string() +
                  ": no tensor matches the model: 1 missing ('a'), 1 unexpected ('x'), 0 shape "
                  "mismatches");
  }
}

TEST_F(LoadTensors, WrapperPrefixIsStrippedWithOneNotice) {
  Model model({{"conv.weight", Shape{2}}, {"module.weight", Shape{3}}});
  for (const std::string prefix : {"module.", "module.model.", "_orig_mod."}) {
    write({{prefix + "conv.weight", Shape{2}}, {prefix + "module.weight", Shape{3}}});
    LogCapture log;
    EXPECT_EQ(load_tensors(path_, model.targets(), true), 2);
    EXPECT_EQ(log.text(), fmt::format("info: {}: names are read without their prefix '{}'\n",
                                      path_.string(), prefix));
    EXPECT_EQ(model[1], std::vector<float>(3, 1));
  }
}

TEST_F(LoadTensors, OwnPrefixIsNotStripped) {
  // All names of the model share "net.": they match as they are.
  write({{"net.a", Shape{2}}, {"net.b", Shape{3}}});
  Model model({{"net.a", Shape{2}}, {"net.b", Shape{3}}});
  LogCapture log;
  EXPECT_EQ(load_tensors(path_, model.targets(), true), 2);
  EXPECT_EQ(log.text(), "");
}

TEST_F(LoadTensors, HalvesAreWidenedAndNothingIsNarrowed) {
  const std::vector<std::uint16_t> bf16 = {0x3f80, 0xc000};  // 1, -2
  const std::vector<std::uint16_t> f16 = {0x3c00, 0x0001};   // 1, 2^-24
  const std::vector<NamedTensor> tensors = {
      {"b", DType::bf16, Shape{2}, std::as_bytes(std::span(bf16))},
      {"h", DType::f16, Shape{2}, std::as_bytes(std::span(f16))}};
  write_safetensors(path_, tensors);
  Model model({{"b", Shape{2}}, {"h", Shape{2}}});
  EXPECT_EQ(load_tensors(path_, model.targets(), true), 2);
  EXPECT_EQ(model[0], (std::vector<float>{1, -2}));
  EXPECT_EQ(model[1], (std::vector<float>{1, 0x1p-24f}));

  write({{"b", Shape{2}}});
  std::vector<std::byte> half(4);
  const TensorTarget target{"b", DType::bf16, Shape{2}, half};
  EXPECT_NE(checkpoint_error_of([&] {
              load_tensors(path_, {&target, 1}, false);
            }).find("1 shape mismatch ('b': file f32 [2], model bf16 [2])"),
            std::string::npos);
}

TEST_F(LoadTensors, NoTargetsAndNoTensors) {
  write({});
  EXPECT_EQ(load_tensors(path_, {}, true), 0);  // an optimizer without state
  Model model({{"a", Shape{1}}});
  EXPECT_NE(checkpoint_error_of([&] { load_tensors(path_, model.targets(), false); }), "");
}

}  // namespace
}  // namespace dtrain
