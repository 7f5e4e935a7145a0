// What transforms make of a sample, and that their random numbers depend on nothing but (seed,
// epoch, sample id).
#include "dtrain/data/transforms.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

constexpr std::int64_t height = 5;
constexpr std::int64_t width = 7;
constexpr std::int64_t channels = 2;

SampleSpec images() {
  SampleSpec spec;
  spec.input.shape = Shape{height, width, channels};
  return spec;
}

// 1, 2, 3, ...: every value says where it came from.
std::vector<float> numbered() {
  std::vector<float> image(height * width * channels);
  std::iota(image.begin(), image.end(), 1.0f);
  return image;
}

std::vector<float> transformed(const Transforms& transforms, std::int64_t epoch, std::int64_t id,
                               bool training = true) {
  std::vector<float> image = numbered();
  transforms.apply(image, epoch, id, training);
  return image;
}

// The plain way: output pixel (y, x) is input pixel (y + down, x + right), or 0.
std::vector<float> shifted(const std::vector<float>& image, std::int64_t down, std::int64_t right) {
  std::vector<float> out(image.size());
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      if (y + down < 0 || y + down >= height || x + right < 0 || x + right >= width) continue;
      for (std::int64_t c = 0; c < channels; ++c) {
        out[static_cast<std::size_t>((y * width + x) * channels + c)] =
            image[static_cast<std::size_t>(((y + down) * width + x + right) * channels + c)];
      }
    }
  }
  return out;
}

std::vector<float> mirrored(const std::vector<float>& image) {
  std::vector<float> out(image.size());
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < channels; ++c) {
        out[static_cast<std::size_t>((y * width + x) * channels + c)] =
            image[static_cast<std::size_t>((y * width + width - 1 - x) * channels + c)];
      }
    }
  }
  return out;
}

// Where a crop by up to `padding` was taken.
std::pair<std::int64_t, std::int64_t> offset_of(const std::vector<float>& image,
                                                std::int64_t padding) {
  for (std::int64_t down = -padding; down <= padding; ++down) {
    for (std::int64_t right = -padding; right <= padding; ++right) {
      if (image == shifted(numbered(), down, right)) return {down, right};
    }
  }
  ADD_FAILURE() << "no crop";
  return {99, 99};
}

TEST(Transforms, NormalizeEachChannel) {
  config::Transforms options;
  for (const double mean : {0.5, 2.0}) options.add_mean(mean);
  for (const double std : {0.25, 3.0}) options.add_std(std);
  const Transforms transforms(options, images(), 1);
  for (const bool training : {false, true}) {
    const std::vector<float> image = transformed(transforms, 0, 0, training);
    EXPECT_EQ(image[0], (1 - 0.5f) / 0.25f);
    EXPECT_EQ(image[1], (2 - 2.0f) / 3.0f);
    EXPECT_EQ(image[69], (70 - 2.0f) / 3.0f);
  }
}

TEST(Transforms, OneValueIsForAllChannels) {
  config::Transforms options;
  options.add_mean(1);
  const std::vector<float> image = transformed(Transforms(options, images(), 1), 0, 0);
  EXPECT_EQ(image[0], 0);
  EXPECT_EQ(image[69], 69);
  SampleSpec features;
  features.input.shape = Shape{3};
  std::vector<float> input{1, 2, 3};
  Transforms(options, features, 1).apply(input, 0, 0, true);
  EXPECT_EQ(input, (std::vector<float>{0, 1, 2}));
}

TEST(Transforms, CropShiftsAndPadsWithZero) {
  config::Transforms options;
  options.set_crop_padding(2);
  const Transforms transforms(options, images(), 1);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::int64_t id = 0; id < 500; ++id) {
    seen.insert(offset_of(transformed(transforms, 0, id), 2));
  }
  EXPECT_EQ(seen.size(), 25u);
}

TEST(Transforms, FlipMirrorsHalfOfTheImages) {
  config::Transforms options;
  options.set_flip(true);
  const Transforms transforms(options, images(), 1);
  int flipped = 0;
  for (std::int64_t id = 0; id < 1000; ++id) {
    const std::vector<float> image = transformed(transforms, 0, id);
    if (image == mirrored(numbered())) {
      ++flipped;
    } else {
      EXPECT_EQ(image, numbered());
    }
  }
  EXPECT_NEAR(flipped, 500, 65);  // four standard deviations
}

TEST(Transforms, EraseClearsOneRectangle) {
  config::Transforms options;
  options.set_erase(1);
  const Transforms transforms(options, images(), 1);
  std::set<std::size_t> sizes;
  for (std::int64_t id = 0; id < 200; ++id) {
    const std::vector<float> image = transformed(transforms, 0, id);
    std::int64_t top = height, bottom = -1, left = width, right = -1;
    std::size_t zeros = 0;
    for (std::int64_t i = 0; i < height * width * channels; ++i) {
      const float value = image[static_cast<std::size_t>(i)];
      if (value != 0) {
        EXPECT_EQ(value, static_cast<float>(i + 1));
        continue;
      }
      ++zeros;
      const std::int64_t y = i / channels / width;
      const std::int64_t x = i / channels % width;
      top = std::min(top, y), bottom = std::max(bottom, y);
      left = std::min(left, x), right = std::max(right, x);
    }
    ASSERT_GT(zeros, 0u);
    EXPECT_EQ(static_cast<std::int64_t>(zeros), (bottom - top + 1) * (right - left + 1) * channels);
    sizes.insert(zeros);
  }
  EXPECT_GT(sizes.size(), 4u);
}

TEST(Transforms, EraseHappensAsOftenAsAsked) {
  config::Transforms options;
  options.set_erase(0.25);
  const Transforms transforms(options, images(), 1);
  int erased = 0;
  for (std::int64_t id = 0; id < 2000; ++id) erased += transformed(transforms, 0, id) != numbered();
  EXPECT_NEAR(erased, 500, 80);
}

// Black is padded before normalization, and erased is the mean after it.
TEST(Transforms, OrderIsCropNormalizeErase) {
  config::Transforms options;
  options.set_crop_padding(4);
  options.set_erase(1);
  options.add_mean(-1000);
  const Transforms transforms(options, images(), 1);
  std::set<float> below;
  for (std::int64_t id = 0; id < 100; ++id) {
    for (const float value : transformed(transforms, 0, id)) {
      if (value <= 1000) below.insert(value);
    }
  }
  EXPECT_EQ(below, (std::set<float>{0, 1000}));
}

config::Transforms all_random() {
  config::Transforms options;
  options.set_crop_padding(2);
  options.set_flip(true);
  options.set_erase(0.5);
  return options;
}

TEST(Transforms, RandomOnesAreForTraining) {
  const Transforms transforms(all_random(), images(), 1);
  for (std::int64_t id = 0; id < 20; ++id) {
    EXPECT_EQ(transformed(transforms, 0, id, false), numbered());
  }
}

TEST(Transforms, NumbersDependOnSeedEpochAndIdAlone) {
  const Transforms transforms(all_random(), images(), 1);
  const Transforms same(all_random(), images(), 1);
  const Transforms other_seed(all_random(), images(), 2);
  int by_seed = 0, by_epoch = 0, by_id = 0;
  for (std::int64_t id = 99; id >= 0; --id) {
    const std::vector<float> image = transformed(transforms, 3, id);
    EXPECT_EQ(image, transformed(same, 3, id));
    by_seed += image == transformed(other_seed, 3, id);
    by_epoch += image == transformed(transforms, 4, id);
    by_id += image == transformed(transforms, 3, id + 1);
  }
  // Chance makes about one pair in a hundred equal.
  EXPECT_LT(by_seed, 10);
  EXPECT_LT(by_epoch, 10);
  EXPECT_LT(by_id, 10);
}

// 64 samples in two epochs: as many equal offsets as chance gives, 64 / 25.
TEST(Transforms, OffsetsOfEpochsDoNotPairUp) {
  config::Transforms options;
  options.set_crop_padding(2);
  const Transforms transforms(options, images(), 7);
  int equal = 0;
  for (std::int64_t id = 0; id < 64; ++id) {
    equal += offset_of(transformed(transforms, 0, id), 2) ==
             offset_of(transformed(transforms, 1, id), 2);
  }
  EXPECT_LT(equal, 10);
}

TEST(Transforms, KeysMustFitTheSamples) {
  SampleSpec features;
  features.input.shape = Shape{3};
  config::Transforms flip;
  flip.set_flip(true);
  EXPECT_EQ(error_text<ConfigError>([&] { Transforms(flip, features, 1); }),
            "data.transforms.flip: is for images [height, width, channels], but samples are [3]");
  config::Transforms crop;
  crop.set_crop_padding(5);
  EXPECT_EQ(error_text<ConfigError>([&] { Transforms(crop, images(), 1); }),
            "data.transforms.crop_padding: 5 may leave nothing of 5 x 7 images; the largest is 4");
  config::Transforms mean;
  for (int i = 0; i < 3; ++i) mean.add_mean(0);
  EXPECT_EQ(error_text<ConfigError>([&] { Transforms(mean, images(), 1); }),
            "data.transforms.mean: samples have 2 channels, but 3 values are given: give 2 values, "
            "or one for all channels");
  config::Transforms std;
  std.add_std(1e-60);
  EXPECT_EQ(error_text<ConfigError>([&] { Transforms(std, images(), 1); }),
            "data.transforms.std: must be positive in 32 bits");
}

}  // namespace
}  // namespace dtrain::test
