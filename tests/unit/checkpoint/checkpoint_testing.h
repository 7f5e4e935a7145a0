// Helpers of the checkpoint tests: small snapshots, damage, messages of errors, captured warnings.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {

// Message of the CheckpointError that `body` throws; "" if it throws none.
template <typename Body>
std::string checkpoint_error_of(Body body) {
  try {
    body();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

inline void write_raw(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

inline CheckpointSnapshot make_snapshot(std::int64_t step, std::vector<float> weights = {1, 2, 3},
                                        std::optional<double> validation_loss = std::nullopt) {
  CheckpointSnapshot snapshot;
  const Shape shape{static_cast<std::int64_t>(weights.size())};
  snapshot.model.resize(1);
  snapshot.model[0].assign("fc.weight", DType::f32, shape, std::as_bytes(std::span(weights)));
  snapshot.optimizer.resize(1);
  snapshot.optimizer[0].assign("fc.weight.momentum", DType::f32, shape,
                               std::as_bytes(std::span(weights)));
  snapshot.state.set_step(step);
  snapshot.state.set_batch(step + 1);
  snapshot.state.set_epoch(0);
  snapshot.state.set_batch_in_epoch(step + 1);
  snapshot.state.set_samples_seen(32 * step);
  snapshot.state.set_skipped(1);
  snapshot.validation_loss = validation_loss;
  return snapshot;
}

// Names in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Takes what is logged while it lives.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
    auto logger = std::make_shared<spdlog::logger>("test", sink);
    logger->set_pattern("%l: %v");
    spdlog::set_default_logger(logger);
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace dtrain
