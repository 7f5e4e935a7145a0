// What the tests of recipes share: the kinds of dtrain, and short ways to read a recipe and to see
// what is wrong with one.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/config/config.h"

namespace dtrain::testing {

inline KindTable known_kinds() {
  KindTable kinds;
  kinds.add("model", "mlp", config::Mlp::default_instance());
  kinds.add("model", "convnet", config::Convnet::default_instance());
  kinds.add("model", "resnet", config::Resnet::default_instance());
  kinds.add("model", "gpt", config::Gpt::default_instance());
  kinds.add("dataset", "glyphs", config::Glyphs::default_instance());
  kinds.add("dataset", "mnist", config::Mnist::default_instance());
  kinds.add("dataset", "cifar10", config::Cifar10::default_instance());
  kinds.add("dataset", "cifar100", config::Cifar100::default_instance());
  kinds.add("dataset", "text", config::Text::default_instance());
  kinds.add("dataset", "tokens", config::Tokens::default_instance());
  kinds.add("dataset", "csv", config::Csv::default_instance());
  kinds.add("dataset", "synthetic", config::Synthetic::default_instance());
  return kinds;
}

// What every recipe must have, to put the key of interest before.
inline constexpr const char* kModel = "model: {name: convnet}\n";
inline constexpr const char* kData = "data: {train: {kind: glyphs}}\n";
inline constexpr const char* kBatch = "batch: {global: 64, micro: 8}\n";

inline std::string with_needed(const std::string& yaml) {
  std::string text = yaml;
  if (text.find("model:") == std::string::npos) text += kModel;
  if (text.find("data:") == std::string::npos) text += kData;
  if (text.find("batch:") == std::string::npos) text += kBatch;
  return text;
}

// `yaml`, completed by what is required.
inline Config read(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(with_needed(yaml), "c.yaml", "/recipes", overrides, known_kinds());
}

// The problems of a recipe, one per element; none if it is accepted.
inline std::vector<std::string> problems_of_text(const std::string& yaml,
                                                 const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(yaml, "c.yaml", "/recipes", overrides, known_kinds());
  } catch (const ConfigError& error) {
    std::vector<std::string> lines;
    std::istringstream stream(error.what());
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  return {};
}

inline std::vector<std::string> problems(const std::string& yaml,
                                         const std::vector<std::string>& overrides = {}) {
  return problems_of_text(with_needed(yaml), overrides);
}

// The one problem of a recipe.
inline std::string problem(const std::string& yaml,
                           const std::vector<std::string>& overrides = {}) {
  const std::vector<std::string> all = problems(yaml, overrides);
  EXPECT_EQ(all.size(), 1U) << yaml << (all.empty() ? "" : all.back());
  return all.empty() ? "" : all.front();
}

}  // namespace dtrain::testing
