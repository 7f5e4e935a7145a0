#include "dtrain/parallel/train/run_record.h"

#include <fstream>
#include <string>

#include <spdlog/spdlog.h>

namespace dtrain {

using nlohmann::ordered_json;

namespace {

// Without a target there is no loss: null, not 0.
ordered_json loss_of(const MetricSums& metrics) {
  return metrics.loss_weight > 0 ? ordered_json(metrics.mean_loss()) : ordered_json();
}

}  // namespace

TokenMetrics token_metrics(const SampleSpec& spec, const config::Loss& loss) {
  const bool tokens = spec.classes > 0 && spec.target.shape.rank() > 0;
  return {.tokens = tokens,
          .perplexity = tokens && loss.label_smoothing() == 0 && loss.class_weights().empty(),
          .bytes_per_target = spec.bytes_per_target};
}

ordered_json to_json(const MetricSums& metrics, const TokenMetrics& tokens) {
  ordered_json json = {{"samples", static_cast<std::int64_t>(metrics.samples)}};
  if (tokens.tokens) json["targets"] = static_cast<std::int64_t>(metrics.targets);
  json["loss"] = loss_of(metrics);
  if (tokens.perplexity && metrics.loss_weight > 0) {
    json["perplexity"] = metrics.perplexity();
    if (tokens.bytes_per_target > 0) {
      json["bits_per_byte"] = metrics.bits_per_byte(tokens.bytes_per_target);
    }
  }
  if (metrics.targets > 0) {
    json["accuracy"] = metrics.accuracy();
    json["accuracy5"] = metrics.accuracy5();
  }
  return json;
}

RunRecord::RunRecord(const Config& config, const TokenMetrics& tokens, bool active,
                     std::int64_t keep_through_step)
    : tokens_(tokens) {
  if (!active) return;
  log_ = std::make_unique<StepLog>(RunFolder{config.values.output()}.log(), keep_through_step);
  progress_ = std::make_unique<Progress>(config.values.log().every_steps());
}

void RunRecord::event(const ordered_json& event) {
  if (log_) log_->write(event);
}

void RunRecord::step(const StepRecord& record) {
  if (!log_) return;
  const double samples_per_s =
      record.step_seconds > 0 ? record.metrics.samples / record.step_seconds : 0;
  ordered_json json = {{"event", record.applied ? "step" : "skip"},
                       {"step", record.step},
                       {"epoch", record.epoch},
                       {"loss", loss_of(record.metrics)}};
  if (record.metrics.targets > 0) json["accuracy"] = record.metrics.accuracy();
  ordered_json norms = ordered_json::object();
  if (record.grad_norms.weights >= 0) norms["weights"] = record.grad_norms.weights;
  if (record.grad_norms.norm_and_bias >= 0)
    norms["norm_and_bias"] = record.grad_norms.norm_and_bias;
  json.update({{"lr", record.lr},
               {"grad_norm", record.grad_norm},
               {"grad_norms", norms},
               {"samples_seen", record.samples_seen},
               {"samples_per_s", samples_per_s},
               {"step_ms", record.step_seconds * 1e3},
               {"data_wait_ms", record.data_wait_seconds * 1e3},
               {"comm_exposed_ms", record.exposed_seconds * 1e3},
               {"loss_scale", record.loss_scale},
               {"skipped", record.skipped}});
  if (!record.ids.empty()) json["ids"] = record.ids;
  log_->write(json);
  // A step without targets has no loss to show, and was said to be skipped.
  if (record.metrics.loss_weight == 0 || !progress_->due(record.step, record.steps)) return;
  progress_->step(
      {.step = record.step,
       .steps = record.steps,
       .epoch = record.epoch,
       .loss = record.metrics.mean_loss(),
       .lr = record.lr,
       .grad_norm = record.grad_norm,
       .samples_per_s = samples_per_s,
       .step_ms = record.step_seconds * 1e3,
       .data_wait_ms = record.data_wait_seconds * 1e3,
       .seconds_left = record.step_seconds * static_cast<double>(record.steps - record.step)});
}

void RunRecord::evaluation(std::int64_t step, const MetricSums& metrics) {
  if (!log_) return;
  ordered_json json = {{"event", "evaluation"}, {"step", step}};
  json.update(to_json(metrics, tokens_));
  log_->write(json);
  progress_->pause();
  std::string line = fmt::format("evaluation at step {} | ", step);
  line += metrics.loss_weight > 0 ? fmt::format("loss {:.6f}", metrics.mean_loss())
                                  : std::string("no loss");
  if (tokens_.perplexity && metrics.loss_weight > 0) {
    line += fmt::format(" | perplexity {:.4f}", metrics.perplexity());
    if (tokens_.bytes_per_target > 0) {
      line +=
          fmt::format(" | bits per byte {:.4f}", metrics.bits_per_byte(tokens_.bytes_per_target));
    }
  }
  if (metrics.targets > 0) line += fmt::format(" | accuracy {:.4f}", metrics.accuracy());
  spdlog::info("{} | {} samples", line, static_cast<std::int64_t>(metrics.samples));
}

void RunRecord::epoch(std::int64_t epoch, std::int64_t step, const MetricSums& metrics) {
  ordered_json json = {{"event", "epoch"}, {"epoch", epoch}, {"step", step}};
  json.update(to_json(metrics, tokens_));
  event(json);
}

std::uint64_t resident_peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace dtrain
