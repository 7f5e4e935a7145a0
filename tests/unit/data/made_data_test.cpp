// Data sets that are made rather than stored: glyphs and synthetic.
#include <array>
#include <cmath>
#include <set>

#include "dtrain/data/glyph_shapes.h"
#include "dtrain/data/glyphs.h"
#include "dtrain/data/synthetic.h"
#include "dtrain/data/synthetic_tokens.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

TEST(Glyphs, SamplesAreAFunctionOfSeedAndIndex) {
  const Glyphs data(1);
  const Glyphs again(1);
  const Glyphs other(2);
  // In another order, from another object.
  const Sample later = read_sample(data, 70'000);
  const Sample first = read_sample(data, 0);
  EXPECT_EQ(read_sample(again, 0), first);
  EXPECT_EQ(read_sample(again, 70'000), later);
  EXPECT_NE(first.input, later.input);
  EXPECT_NE(read_sample(other, 0).input, first.input);
}

// Recipes promise their bits on every machine, so the drawing must not change by itself.
TEST(Glyphs, BitsAreFixedForEver) {
  EXPECT_EQ(Glyphs(1).identity(), "36d4817001b323436d90289c40c1434f");
  EXPECT_EQ(Glyphs(2).identity(), "59524ddcbde180a5bcada9b93128794c");
}

TEST(Glyphs, ImagesAreDigitsInGray) {
  const Glyphs data(1);
  EXPECT_EQ(data.size(), endless);
  EXPECT_EQ(data.spec().input.shape, (Shape{28, 28, 1}));
  EXPECT_EQ(data.spec().classes, 10);
  std::array<int, 10> seen{};
  for (std::int64_t i = 0; i < 2000; ++i) {
    const Sample sample = read_sample(data, i);
    ASSERT_TRUE(sample.label >= 0 && sample.label < 10);
    ++seen[static_cast<std::size_t>(sample.label)];
    int ink = 0;
    for (const float value : sample.input) {
      ASSERT_TRUE(value >= 0 && value <= 1);
      ink += value > 0.5f;
    }
    // Strokes are there, and paper.
    EXPECT_GT(ink, 10) << i;
    EXPECT_LT(ink, 400) << i;
  }
  for (const int count : seen) EXPECT_NEAR(count, 200, 54);  // four standard deviations
}

TEST(Glyphs, EveryDigitHasStyles) {
  for (int digit = 0; digit < 10; ++digit) {
    EXPECT_GE(glyph_styles(digit).size(), 2u);
    for (const GlyphStyle& style : glyph_styles(digit)) {
      EXPECT_GE(style.count, 1);
      for (int s = 0; s < style.count; ++s) {
        const GlyphStroke& stroke = style.strokes[static_cast<std::size_t>(s)];
        EXPECT_GE(stroke.count, 2);
        for (int p = 0; p < stroke.count; ++p) {
          EXPECT_LE(std::abs(stroke.points[static_cast<std::size_t>(p)].x), 0.7f);
          EXPECT_LE(std::abs(stroke.points[static_cast<std::size_t>(p)].y), 0.95f);
        }
      }
    }
  }
  EXPECT_THROW(glyph_styles(10), InternalError);
}

config::Synthetic keys(std::initializer_list<int> shape, int classes = 7, std::uint64_t seed = 1) {
  config::Synthetic options;
  for (const int size : shape) options.add_shape(size);
  options.set_classes(classes);
  options.set_seed(seed);
  return options;
}

TEST(SyntheticData, HasTheShapeAndUnitVariance) {
  const Synthetic data(keys({4, 4, 3}));
  EXPECT_EQ(data.spec().input.shape, (Shape{4, 4, 3}));
  EXPECT_EQ(data.spec().classes, 7);
  std::set<std::int64_t> labels;
  double sum = 0, squares = 0;
  constexpr int samples = 500;
  for (std::int64_t i = 0; i < samples; ++i) {
    const Sample sample = read_sample(data, i);
    labels.insert(sample.label);
    for (const float value : sample.input) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  EXPECT_EQ(labels, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_NEAR(sum / (samples * 48), 0, 0.03);
  EXPECT_NEAR(squares / (samples * 48), 1, 0.03);
}

TEST(SyntheticData, SamplesAreAFunctionOfSeedAndIndex) {
  const Synthetic data(keys({5}));
  EXPECT_EQ(read_sample(data, 9), read_sample(Synthetic(keys({5})), 9));
  EXPECT_NE(read_sample(data, 9).input, read_sample(data, 10).input);
  EXPECT_NE(read_sample(data, 9).input, read_sample(Synthetic(keys({5}, 7, 2)), 9).input);
  // A longer sample begins like a shorter one.
  const std::vector<float> longer = read_sample(Synthetic(keys({6})), 9).input;
  EXPECT_EQ(std::vector<float>(longer.begin(), longer.begin() + 5), read_sample(data, 9).input);
}

TEST(SyntheticData, IdentityNamesEveryKey) {
  const std::set<std::string> identities{
      Synthetic(keys({5})).identity(), Synthetic(keys({6})).identity(),
      Synthetic(keys({5, 1})).identity(), Synthetic(keys({5}, 8)).identity(),
      Synthetic(keys({5}, 7, 2)).identity()};
  EXPECT_EQ(identities.size(), 5u);
}

TEST(SyntheticData, ShapesMustBePossible) {
  EXPECT_EQ(error_text<ConfigError>([] { Synthetic{keys({})}; }),
            "synthetic.shape: 0 axes, expected 1 to 5");
  EXPECT_EQ(error_text<ConfigError>([] {
              Synthetic{keys({1, 1, 1, 1, 1, 1})};
            }),
            "synthetic.shape: 6 axes, expected 1 to 5");
  EXPECT_EQ(error_text<ConfigError>([] {
              Synthetic{keys({1 << 16, 1 << 16})};
            }),
            "synthetic.shape: axis of 65536 makes a sample of no or more than 1073741824 elements");
  EXPECT_EQ(error_text<ConfigError>([] { Synthetic{keys({3}, 0)}; }),
            "synthetic.classes: 0 is less than 1");
}

config::Synthetic token_keys(int tokens, int classes = 300, std::uint64_t seed = 1) {
  config::Synthetic options;
  options.set_tokens(tokens);
  options.set_classes(classes);
  options.set_seed(seed);
  return options;
}

struct Tokens {
  std::vector<std::int32_t> input;
  std::vector<std::int64_t> target;
};

Tokens read_tokens(const Dataset& data, std::int64_t index) {
  const auto length = static_cast<std::size_t>(data.spec().input.shape.elements());
  Tokens sample{std::vector<std::int32_t>(length), std::vector<std::int64_t>(length)};
  data.read(index, std::as_writable_bytes(std::span(sample.input)),
            std::as_writable_bytes(std::span(sample.target)));
  return sample;
}

TEST(SyntheticTokens, TargetsAreTheNextTokens) {
  const SyntheticTokens data(token_keys(7));
  EXPECT_EQ(data.spec().input.dtype, DType::i32);
  EXPECT_EQ(data.spec().input.shape, (Shape{7}));
  EXPECT_EQ(data.spec().target.dtype, DType::i64);
  EXPECT_EQ(data.spec().target.shape, (Shape{7}));
  EXPECT_EQ(data.spec().classes, 300);
  std::set<std::int32_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const Tokens sample = read_tokens(data, i);
    for (std::size_t k = 0; k < 7; ++k) {
      ASSERT_TRUE(sample.input[k] >= 0 && sample.input[k] < 300);
      ASSERT_TRUE(sample.target[k] >= 0 && sample.target[k] < 300);
      if (k > 0) {
        ASSERT_EQ(sample.target[k - 1], sample.input[k]);
      }
      seen.insert(sample.input[k]);
    }
  }
  EXPECT_EQ(seen.size(), 300u);
}

TEST(SyntheticTokens, SamplesAreAFunctionOfSeedAndIndex) {
  const SyntheticTokens data(token_keys(9));
  EXPECT_EQ(read_tokens(data, 5).input, read_tokens(SyntheticTokens(token_keys(9)), 5).input);
  EXPECT_NE(read_tokens(data, 5).input, read_tokens(data, 6).input);
  EXPECT_NE(read_tokens(data, 5).input,
            read_tokens(SyntheticTokens(token_keys(9, 300, 2)), 5).input);
  const std::set<std::string> identities{data.identity(), SyntheticTokens(token_keys(8)).identity(),
                                         SyntheticTokens(token_keys(9, 301)).identity(),
                                         SyntheticTokens(token_keys(9, 300, 2)).identity()};
  EXPECT_EQ(identities.size(), 4u);
}

}  // namespace
}  // namespace dtrain::test
