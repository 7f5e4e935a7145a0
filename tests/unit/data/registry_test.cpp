// Parts of data sets that cannot be, and what is said about them.
#include "dtrain/data/registry.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/config/config.h"
#include "dtrain/parallel/train/registry.h"

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

}  // namespace
}  // namespace dtrain::test
