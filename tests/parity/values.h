// Reads the value files that stand beside this header.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace dtrain::parity {

inline nlohmann::json read(const std::string& name) {
  const std::string path = std::string(DTRAIN_SOURCE_DIR) + "/tests/parity/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

// All numbers of nested lists, in order.
inline std::vector<float> floats(const nlohmann::json& values) {
  if (values.is_number()) return {values.get<float>()};
  std::vector<float> result;
  for (const nlohmann::json& value : values) {
    const std::vector<float> inner = floats(value);
    result.insert(result.end(), inner.begin(), inner.end());
  }
  return result;
}

}  // namespace dtrain::parity
