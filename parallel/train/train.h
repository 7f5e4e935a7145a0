// Training and evaluation, as one rank of the job sees it.
//
//   RunResult result = train(config, registry, RankInfo::from_environment(), options);
//
// Errors are thrown; the process that calls reports them. A result says how the run ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "dtrain/parallel/train/rank_info.h"
#include "dtrain/parallel/train/rank_status.h"
#include "dtrain/parallel/train/registry.h"

namespace dtrain {

enum class RunEnd : std::uint8_t {
  done,        // all steps made, or early stop
  nothing,     // resumed a finished run: nothing to do, files untouched
  stopped,     // by a signal: checkpoint written
  out_of_time  // max_time or SIGUSR1: checkpoint written, to be resumed
};

struct RunOptions {
  bool resume = false;           // from the newest checkpoint of the output folder, if any
  std::string resume_from = {};  // a checkpoint that must exist
  bool overwrite = false;        // the launcher cleared the output folder
  RankStatus* status = nullptr;  // where to show the step; may be null
  // Signal number that asks to stop (0: none yet); set by the program's signal handler.
  const std::atomic<int>* stop_signal = nullptr;
};

struct RunResult {
  RunEnd end = RunEnd::done;
  int signal = 0;                       // the signal that stopped the run, on all ranks alike
  nlohmann::ordered_json summary = {};  // of rank 0: summary.json, which train() has written
};

RunResult train(const Config& config, const Registry& registry, const RankInfo& rank,
                const RunOptions& options);

// Evaluates weights (a checkpoint or run folder, or a safetensors file) on the validation data, or
// the training data if there is none. Returns {loss, accuracy, samples, ...}.
nlohmann::ordered_json evaluate(const Config& config, const Registry& registry,
                                const RankInfo& rank, const std::filesystem::path& weights,
                                const RunOptions& options);

// Files of a run.
struct RunFolder {
  std::filesystem::path root;
  std::filesystem::path config() const { return root / "config.yaml"; }
  std::filesystem::path log() const { return root / "log.jsonl"; }
  std::filesystem::path summary() const { return root / "summary.json"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path rank_log(int rank) const {
    return root / ("rank-" + std::to_string(rank) + ".log");
  }
};

// Checks before any rank starts that the output folder may be used: throws ConfigError if it holds
// a run and neither --resume, --resume-from nor --overwrite was given. Under --overwrite removes
// what the earlier run left (only files that a run makes). Writes nothing else.
// Also throws it where the folder cannot be used, or a file of the names above is not a run's:
// Note [Whose file it is].
void prepare_output(const RunFolder& folder, const RunOptions& options);

// Whether `file` is one that a run in this folder writes over or removes. A resolved recipe that a
// run left as config.yaml is not: it is replaced by itself.
bool run_writes(const RunFolder& folder, const std::filesystem::path& file);

}  // namespace dtrain
