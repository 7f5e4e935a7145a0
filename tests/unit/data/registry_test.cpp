// Parts of data sets that cannot be, and what is said about them.
#include "dtrain/data/registry.h"

#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "dtrain/core/config/config.h"
#include "dtrain/parallel/train/registry.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

std::string error_of(const std::string& source,
                     const std::string& kind = "kind: synthetic, shape: [3], ") {
  const Registry registry = builtin_registry();
  const Config config = parse_config(
      "model: {name: mlp, inputs: 3, outputs: 1}\nloss: mse\n"
      "data: {train: {" +
          kind + source + "}}\nbatch: {global: 8, micro: 2}\n",
      "test.yaml", "/", {}, registry.kinds());
  try {
    registry.datasets.create(config.values.data().train(), "data.train", false);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string error_of_csv(const std::string& keys) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "points.csv";
  std::ofstream(path) << "x,y\n1,2\n3,4\n5,6\n7,8\n";
  return error_of(keys,
                  fmt::format("kind: csv, path: {}, features: [x], targets: [y], ", path.string()));
}

TEST(DatasetPart, TooManyRepetitionsNameTheLimitAndTheRemedy) {
  EXPECT_EQ(error_of("size: 1000000, repeat: 2147483647"),
            "data.train.repeat: 2147483647 times 1000000 samples are not from 1 to "
            "281474976710656 samples an epoch: repeat at most 281474976 times, and train for more "
            "epochs");
}

TEST(DatasetPart, AShareThatIsNothingSaysSo) {
  const std::string text = error_of_csv("size: 1%");
  EXPECT_EQ(text,
            "data.train.size: 1% of 4 samples is 0 samples: give a larger share, or a number of "
            "samples");
}

// Either key may be the mistaken one: both are named.
TEST(DatasetPart, APartBehindTheEndNamesBothKeys) {
  EXPECT_EQ(error_of_csv("size: 3, offset: 2"),
            "data.train.offset and data.train.size: 3 samples from offset 2 on, but data set 'csv' "
            "has 4 samples");
}

TEST(DatasetPart, AnEndlessSetNeedsASize) {
  EXPECT_EQ(error_of(""),
            "data.train.size: must be given, because data set 'synthetic' has no end");
  EXPECT_EQ(error_of("size: 50%"),
            "data.train.size: 50% of a data set without end; give a number of samples");
}

// A data set of the program's own: sample i is i.
class Count final : public Dataset {
 public:
  explicit Count(std::int64_t size) : size_(size) {
    spec_.input.shape = Shape{1};
    spec_.target.shape = Shape{1};
  }
  std::int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override {
    const auto value = static_cast<float>(index);
    std::memcpy(input.data(), &value, sizeof value);
    std::memcpy(target.data(), &value, sizeof value);
  }
  std::string origin(std::int64_t index) const override { return std::to_string(index); }
  std::string identity() const override { return std::to_string(size_); }
  void check(std::int64_t first, std::int64_t last) const override {
    if (first <= 7 && 7 < last) throw DataError("count", 7, "is bad");
  }

 private:
  std::int64_t size_;
  SampleSpec spec_;
};

std::unique_ptr<Dataset> count(const std::string& keys, bool skip_bad = true) {
  Registry registry = builtin_registry();
  KindSchema schema("count");
  schema.integer("numbers", std::nullopt, "how many");
  registry.datasets.add(schema, [](const KindValues& values) {
    return std::make_unique<Count>(values.integer("numbers"));
  });
  const Config config = parse_config(
      "model: {name: mlp, inputs: 1, outputs: 1}\nloss: mse\n"
      "data: {train: {kind: count, " +
          keys + "}}\nbatch: {global: 2, micro: 1}\n",
      "test.yaml", "/", {}, registry.kinds());
  return registry.datasets.create(config.values.data().train(), "data.train", skip_bad);
}

// What sample i of the part is in the whole.
std::vector<float> values_of(const Dataset& data) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < data.size(); ++i) values.push_back(read_sample(data, i).input[0]);
  return values;
}

TEST(DatasetPart, OffsetSizeAndRepeatChooseSamples) {
  using Values = std::vector<float>;
  EXPECT_EQ(values_of(*count("numbers: 4")), (Values{0, 1, 2, 3}));
  EXPECT_EQ(values_of(*count("numbers: 4, size: 2")), (Values{0, 1}));
  EXPECT_EQ(values_of(*count("numbers: 4, offset: 1")), (Values{1, 2, 3}));
  EXPECT_EQ(values_of(*count("numbers: 4, offset: 1, size: 2, repeat: 2")), (Values{1, 2, 1, 2}));
  EXPECT_EQ(count("numbers: 4, offset: 2")->origin(1), "3");
}

// The two parts of one split have every sample, once.
TEST(DatasetPart, SharesRoundDownAlike) {
  for (std::int64_t n = 2; n < 40; ++n) {
    for (const char* share : {"90%", "33.3%", "50%"}) {
      const std::string numbers = fmt::format("numbers: {}, ", n);
      const std::int64_t offset = std::stod(share) * static_cast<double>(n) / 100;
      if (offset == 0) continue;
      const std::vector<float> first = values_of(*count(numbers + "size: " + share));
      const std::vector<float> second = values_of(*count(numbers + "offset: " + share));
      EXPECT_EQ(static_cast<std::int64_t>(first.size() + second.size()), n) << share;
      EXPECT_EQ(second[0], first.back() + 1);
    }
  }
  EXPECT_EQ(count("numbers: 10, size: 90%")->size(), 9);
  EXPECT_EQ(count("numbers: 19, size: 90%")->size(), 17);
}

TEST(DatasetPart, IdentityIsThatOfThePart) {
  const std::set<std::string> identities{
      count("numbers: 4")->identity(), count("numbers: 4, size: 2")->identity(),
      count("numbers: 4, offset: 2")->identity(), count("numbers: 4, repeat: 2")->identity(),
      count("numbers: 5")->identity()};
  EXPECT_EQ(identities.size(), 5u);
  EXPECT_EQ(count("numbers: 4, size: 2")->identity(), count("numbers: 4, size: 50%")->identity());
}

TEST(DatasetPart, OnlyBadSamplesOfThePartStopARun) {
  EXPECT_THROW(count("numbers: 10", false), DataError);
  EXPECT_THROW(count("numbers: 10, offset: 7, repeat: 3", false), DataError);
  EXPECT_NO_THROW(count("numbers: 10, size: 7, repeat: 3", false));
  EXPECT_NO_THROW(count("numbers: 10, offset: 8", false));
  EXPECT_NO_THROW(count("numbers: 10", true));
}

// Two sections, or two keys of one, may name files of one folder.
TEST(DatasetRegistry, FilesAreNamedWithTheirKey) {
  DatasetRegistry registry;
  register_builtin_datasets(registry);
  config::Mnist options;
  options.set_images("/nowhere/images");
  options.set_labels("/nowhere/labels");
  config::DataSource source;
  source.set_kind("mnist");
  source.mutable_options()->PackFrom(options);
  EXPECT_EQ(error_text<Error>([&] { registry.create(source, "data.validation"); }),
            "data.validation.images: /nowhere/images: cannot open: No such file or directory "
            "(ENOENT)");
}

TEST(DatasetRegistry, UnknownKindsNameTheNearest) {
  DatasetRegistry registry;
  register_builtin_datasets(registry);
  config::DataSource source;
  source.set_kind("glyph");
  EXPECT_EQ(error_text<ConfigError>([&] { registry.create(source, "data.validation"); }),
            "data.validation.kind: 'glyph' is not a data set of this program; did you mean glyphs? "
            "there are cifar10, cifar100, csv, glyphs, mnist, synthetic, text, tokens");
}

}  // namespace
}  // namespace dtrain::test
