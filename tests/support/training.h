// Trains recipes inside a test, with ranks as threads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dtrain/core/base/files.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain::test {

struct TrainingRun {
  RunResult result;                 // of rank 0
  std::vector<nlohmann::json> log;  // lines of log.jsonl
  std::filesystem::path folder;

  std::string digest() const { return result.summary.at("weights_digest"); }
  // The log's objects whose "event" is `name`.
  std::vector<nlohmann::json> events(const std::string& name) const;
  // Field of each step, in order.
  std::vector<double> steps(const std::string& field) const;
};

// Runs `yaml` (its keys of `output` are replaced by `folder`) on as many ranks, each a thread of
// this process over the local transport. Throws what the first failing rank threw.
TrainingRun train_threads(const std::string& yaml, int ranks, const std::filesystem::path& folder,
                          const std::vector<std::string>& overrides = {},
                          const RunOptions& options = {},
                          const Registry& registry = builtin_registry());

// Text of a file.
std::string text_of(const std::filesystem::path& path);

}  // namespace dtrain::test
