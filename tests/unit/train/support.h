// Recipes, and what they say.
#pragma once

#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "training.h"
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/local/run_ranks.h"
#include "dtrain/parallel/train/plan.h"

namespace dtrain::test {

constexpr const char* small_recipe = R"(
model: {name: mlp, inputs: 784, hidden: [6], outputs: 10}
data:
  train: {kind: glyphs, size: 24}
  validation: {kind: glyphs, size: 10, offset: 24}
batch: {global: 8, micro: 2}
optimizer: {name: adam, lr: 0.01}
train: {steps: 2}
parallel: {virtual_ranks: 4}
seed: 3
)";

inline Config config_of(const std::string& yaml, const std::vector<std::string>& overrides = {},
                        const Registry& registry = builtin_registry()) {
  return parse_config(yaml, "test.yaml", "/", overrides, registry.kinds());
}

// What `body` throws: the text of the error, or nothing.
template <typename E>
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Captures what is logged while it lives.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>(
        "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%l: %v");
    spdlog::set_default_logger(logger);
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace dtrain::test
