#include "dtrain/core/config/describe.h"

#include "dtrain/core/base/files.h"
#include "dtrain/core/config/kind_schema.h"
#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

TEST(Describe, TheDocumentationIsTheSchema) {
  const std::string document = read_file(DTRAIN_SOURCE_DIR "/docs/configuration.md");
  const std::string schema = describe_schema(known_kinds());
  const std::size_t begin = document.find("## Top level");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(document.substr(begin), schema)
      << "replace what follows the hand-written head of docs/configuration.md by this";
}

TEST(Describe, EveryKeyIsExplained) {
  const std::string schema = describe_schema(known_kinds());
  EXPECT_EQ(schema.find("| |\n"), std::string::npos) << "a key of train.proto has no doc";
  EXPECT_NE(schema.find("| `lr` | number | `0.001` | >= 0 |"), std::string::npos);
  EXPECT_NE(schema.find("| `channels` | list of whole numbers | `[32, 64]` | >= 1 |"),
            std::string::npos);
  EXPECT_NE(schema.find("| `virtual_ranks` | whole number | `auto` |"), std::string::npos);
  EXPECT_NE(schema.find("### `model`: `name: convnet`"), std::string::npos);
  EXPECT_NE(schema.find("only for sgd"), std::string::npos);
}

TEST(Describe, KindsOfAProgramAreDescribed) {
  KindSchema schema("two_towers");
  schema.integer("width", std::nullopt, "units | of the hidden layer", {.min = 1});
  KindTable kinds = known_kinds();
  kinds.add("model", schema.name(), schema.prototype());
  EXPECT_NE(describe_schema(kinds).find(
                "### `model`: `name: two_towers`\n\nBeside the keys above:\n\n"
                "| key | type | default | values | meaning |\n|---|---|---|---|---|\n"
                "| `width` | whole number | required | >= 1 | units \\| of the hidden layer |\n"),
            std::string::npos);
}

}  // namespace
}  // namespace dtrain::testing
