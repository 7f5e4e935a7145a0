// log.jsonl: one JSON object per line; the machine-readable record of a run. A log that cannot be
// written never ends a training run: it warns once.
//
//   StepLog log("runs/a/log.jsonl", resumed_step);   // -1 for a fresh run
//   log.write({{"event", "step"}, {"step", 101}, {"loss", 0.25}});
//
// One process writes (global rank 0), from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <nlohmann/json_fwd.hpp>

namespace dtrain {

class StepLog {
 public:
  // Appends to `path`. On resume at step `keep_through_step`, lines of later steps (of an
  // interrupted run) and a last line that a killed run left half written are cut away first, so
  // that each step stands once; a line without a step goes with the line before it. -1 starts
  // afresh. Never throws.
  StepLog(const std::filesystem::path& path, std::int64_t keep_through_step);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  // Writes one line, whole or not at all. Non-finite numbers become the strings "NaN", "Infinity",
  // "-Infinity". Never throws.
  void write(const nlohmann::ordered_json& event);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
