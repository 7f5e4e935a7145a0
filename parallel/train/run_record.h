// What rank 0 writes about a run while it goes: console, log.jsonl, summary.json. On other ranks a
// record does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "dtrain/core/config/config.h"
#include "dtrain/core/metrics/metric.h"
#include "dtrain/core/metrics/progress.h"
#include "dtrain/core/metrics/step_log.h"
#include "dtrain/data/dataset.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {

// A norm of gradients by group of parameters. As the optimizer's groups: those that decay, and
// norm weights and biases, which `decay_norm_and_bias: false` leaves out. A group that the model
// lacks is negative.
struct GradientNorms {
  double weights = -1;
  double norm_and_bias = -1;
};

struct StepRecord {
  std::int64_t step = 0;
  std::int64_t steps = 0;  // of the run
  std::int64_t epoch = 0;
  MetricSums metrics;
  double lr = 0;
  double grad_norm = 0;
  GradientNorms grad_norms = {};
  std::int64_t samples_seen = 0;  // global, of the whole run
  double step_seconds = 0;
  double data_wait_seconds = 0;
  double exposed_seconds = 0;
  double loss_scale = 1;
  std::int64_t skipped = 0;  // steps skipped so far
  bool applied = true;
  std::vector<std::int64_t> ids = {};  // of the step's samples, if asked for
};

// What the figures of a loss over tokens mean. Perplexity is the exponential of the mean loss, so
// there is one only where the loss is plain cross entropy: without smoothing or class weights.
struct TokenMetrics {
  bool tokens = false;  // a sample has many targets: they are counted
  bool perplexity = false;
  double bytes_per_target = 0;  // 0: unknown, and no bits per byte
};
TokenMetrics token_metrics(const SampleSpec& spec, const config::Loss& loss);

// {samples, targets, loss, perplexity, bits_per_byte, accuracy, accuracy5}: accuracies only for
// label targets, the others as TokenMetrics says.
nlohmann::ordered_json to_json(const MetricSums& metrics, const TokenMetrics& tokens);

class RunRecord {
 public:
  // `keep_through_step`: step of the checkpoint that a resumed run goes on from, -1 for a new one.
  RunRecord(const Config& config, const TokenMetrics& tokens, bool active,
            std::int64_t keep_through_step);

  void event(const nlohmann::ordered_json& event);
  void step(const StepRecord& record);
  void evaluation(std::int64_t step, const MetricSums& metrics);
  // Training metrics of a whole epoch.
  void epoch(std::int64_t epoch, std::int64_t step, const MetricSums& metrics);
  // Before anything else is printed.
  void pause() {
    if (progress_) progress_->pause();
  }

 private:
  TokenMetrics tokens_;
  std::unique_ptr<StepLog> log_;
  std::unique_ptr<Progress> progress_;
};

// What stands in summary.json for a rank: {VmHWM, allocator peak} in bytes.
struct RankMemory {
  std::uint64_t resident_peak = 0;
  std::uint64_t allocator_peak = 0;
};
std::uint64_t resident_peak_bytes();  // VmHWM of this process

}  // namespace dtrain
