// Recipes from any bytes: an error that says so, or a recipe that survives being written and read
// again. Nothing else may happen. Text after a line of `%%%` is an override.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/config/config.h"
#include "dtrain/core/config/kind_schema.h"

namespace {

const dtrain::KindTable& kinds() {
  static const dtrain::KindSchema schema = [] {
    dtrain::KindSchema custom("custom");
    custom.integer("width", 64, "", {.min = 1})
        .number("margin", 0.5, "")
        .texts("words", false, "")
        .path("file", "", "");
    return custom;
  }();
  static const dtrain::KindTable table = [] {
    dtrain::KindTable all;
    all.add("model", "mlp", dtrain::config::Mlp::default_instance());
    all.add("model", "convnet", dtrain::config::Convnet::default_instance());
    all.add("model", "custom", schema.prototype());
    all.add("dataset", "glyphs", dtrain::config::Glyphs::default_instance());
    all.add("dataset", "mnist", dtrain::config::Mnist::default_instance());
    all.add("dataset", "csv", dtrain::config::Csv::default_instance());
    all.add("dataset", "synthetic", dtrain::config::Synthetic::default_instance());
    return all;
  }();
  return table;
}

void require(bool condition, const char* what, const std::string& text) {
  if (condition) return;
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  constexpr std::string_view kSeparator = "\n%%%\n";
  for (std::size_t at; (at = text.rfind(kSeparator)) != std::string::npos;) {
    overrides.insert(overrides.begin(), text.substr(at + kSeparator.size()));
    text.resize(at);
  }
  dtrain::Config config;
  try {
    config = dtrain::parse_config(text, "fuzz.yaml", "/recipes", overrides, kinds());
  } catch (const dtrain::ConfigError& error) {
    require(error.what()[0] != '\0', "an error without text", text);
    return 0;
  }
  const std::string written = dtrain::to_yaml(config, kinds());
  try {
    const dtrain::Config again =
        dtrain::parse_config(written, "fuzz.yaml", "/elsewhere", {}, kinds());
    require(again.values.SerializeAsString() == config.values.SerializeAsString(),
            "reads back as other values", written);
    require(dtrain::recipe_digest(again) == dtrain::recipe_digest(config), "other digest", written);
  } catch (const dtrain::ConfigError& error) {
    require(false, error.what(), written);
  }
  return 0;
}
