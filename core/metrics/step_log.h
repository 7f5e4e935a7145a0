// log.jsonl: one JSON object per line; the machine-readable record of a run. A log that cannot be
// written never ends a training run: it warns once.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dtrain {

class StepLog {
 public:
  // Appends to `path`. On resume at step `keep_through_step`, lines of later steps (of an
  // interrupted run) are cut away first, so that each step stands once; -1 starts afresh.
  StepLog(const std::filesystem::path& path, std::int64_t keep_through_step);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  // Writes one line. Non-finite numbers become the strings "NaN", "Infinity", "-Infinity".
  void write(const nlohmann::ordered_json& event);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
