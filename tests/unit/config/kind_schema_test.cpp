#include "dtrain/core/config/kind_schema.h"

#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

KindSchema two_towers() {
  KindSchema schema("two_towers");
  schema.integer("width", 64, "units of the hidden layer", {.min = 1, .max = 4096})
      .number("margin", 0.5, "distance between the classes", {.min = 0})
      .flag("shared", true, "one tower twice")
      .text("pooling", "mean", "over a tower", {"mean", "max"})
      .path("vocabulary", std::nullopt, "word list")
      .integers("depths", std::vector<std::int64_t>{2, 3}, "layers of each tower", {.min = 1})
      .numbers("weights", std::vector<double>{}, "of the classes")
      .texts("columns", false, "to read");
  return schema;
}

class CustomKind : public ::testing::Test {
 protected:
  CustomKind() { kinds_.add("model", schema_.name(), schema_.prototype()); }

  Config read_with(const std::string& keys, const std::vector<std::string>& overrides = {}) {
    return parse_config(with_needed("model: {name: two_towers, " + keys + "}\n"), "c.yaml",
                        "/recipes", overrides, kinds_);
  }

  std::string error_of(const std::string& keys) {
    try {
      read_with(keys);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  KindSchema schema_ = two_towers();
  KindTable kinds_ = known_kinds();
};

TEST_F(CustomKind, ValuesAndDefaults) {
  const Config config = read_with("width: 128, vocabulary: words.txt, columns: [a, b]");
  const KindValues values(config.values.model().options(), schema_);
  EXPECT_EQ(values.integer("width"), 128);
  EXPECT_EQ(values.number("margin"), 0.5);
  EXPECT_TRUE(values.flag("shared"));
  EXPECT_EQ(values.text("pooling"), "mean");
  EXPECT_EQ(values.text("vocabulary"), "/recipes/words.txt");
  EXPECT_EQ(values.integers("depths"), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(values.numbers("weights"), std::vector<double>());
  EXPECT_EQ(values.texts("columns"), (std::vector<std::string>{"a", "b"}));
  EXPECT_THROW(values.integer("height"), InternalError);
  EXPECT_THROW(values.number("width"), InternalError);
  EXPECT_THROW(values.integer("depths"), InternalError);
}

TEST_F(CustomKind, IsReadAsStrictlyAsAnyOther) {
  EXPECT_EQ(error_of("vocabulary: v, widht: 3"),
            "c.yaml:1:42: model.widht: unknown key (value '3'); did you mean model.width?");
  EXPECT_EQ(error_of("vocabulary: v, width: 0"),
            "c.yaml:1:49: model.width: must be from 1 to 4096, found '0'");
  EXPECT_EQ(error_of("vocabulary: v, width: 2.5"),
            "c.yaml:1:49: model.width: expected a whole number, found '2.5'");
  EXPECT_EQ(error_of("vocabulary: v, pooling: sum"),
            "c.yaml:1:51: model.pooling: must be mean or max, found 'sum'");
  EXPECT_EQ(error_of("width: 3"),
            "c.yaml:1:8: model.vocabulary: the key is required, but missing: text (word list)");
  EXPECT_EQ(error_of("vocabulary: v, depths: [1, 0]"),
            "c.yaml:1:54: model.depths[1]: must be at least 1, found '0'");
}

TEST_F(CustomKind, IsWrittenAndComparedAsAnyOther) {
  const Config config = read_with("vocabulary: v", {"model.margin=0.25"});
  const std::string yaml = to_yaml(config, kinds_);
  EXPECT_NE(yaml.find("\n  margin: 0.25  # command line\n"), std::string::npos);
  EXPECT_NE(yaml.find("\n  depths: [2, 3]\n"), std::string::npos);
  const Config again = parse_config(yaml, "d.yaml", "/elsewhere", {}, kinds_);
  EXPECT_EQ(again.values.SerializeAsString(), config.values.SerializeAsString());
  const Config other = read_with("vocabulary: v");
  EXPECT_EQ(recipe_differences(other.values, config.values, kinds_),
            std::vector<std::string>{"model.margin: 0.5 -> 0.25"});
  // Even without the table, a difference is seen.
  EXPECT_EQ(recipe_differences(other.values, config.values).size(), 1U);
  // A path is no part of the recipe, known by its key.
  EXPECT_EQ(recipe_digest(read_with("vocabulary: w")), recipe_digest(other));
}

TEST(KindSchema, MistakesOfTheProgramAreBugs) {
  EXPECT_THROW(KindSchema("Two Towers"), InternalError);
  KindSchema schema("kind");
  schema.integer("a", 1, "");
  EXPECT_THROW(schema.integer("a", 1, ""), InternalError);
  EXPECT_THROW(schema.integer("b c", 1, ""), InternalError);
  EXPECT_THROW(schema.text("t", "x", "", {"y"}), InternalError);
  schema.prototype();
  EXPECT_THROW(schema.integer("late", 1, ""), InternalError);
  KindTable kinds;
  kinds.add("model", "kind", schema.prototype());
  EXPECT_THROW(kinds.add("model", "kind", schema.prototype()), InternalError);
  EXPECT_THROW(KindValues(google::protobuf::Any(), schema), InternalError);
}

TEST(KindSchema, MayHaveNoKeys) {
  const KindSchema schema("bare");
  KindTable kinds = known_kinds();
  kinds.add("dataset", "bare", schema.prototype());
  const Config config =
      parse_config(with_needed("data: {train: {kind: bare}}\n"), "c.yaml", "/", {}, kinds);
  EXPECT_EQ(config.values.data().train().kind(), "bare");
}

}  // namespace
}  // namespace dtrain::testing
