// The training that the benchmarks time: the convnet of examples/digits.yaml with two virtual
// ranks, without checkpoints and validation, one core a process.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

struct Training {
  std::string data = "glyphs";         // or synthetic
  int steps = 60;                      // measured
  int warmup = 10;                     // made before, not measured
  std::vector<std::string> overrides;  // "batch.micro=16"
};

// Recipe of the training, as YAML; `folder` receives the run's files.
std::string recipe_of(const Training& training, const std::filesystem::path& folder);

// A communicator to train with in place of the given one, which outlives it.
using Decorate = std::function<std::unique_ptr<Communicator>(Communicator& comm, int buckets)>;

struct MeasuredRun {
  std::vector<nlohmann::json> steps;  // lines of log.jsonl, without those of the warm-up
  std::string digest;                 // of the weights at the end
  std::size_t gradient_elements = 0;  // numbers that a rank brings into the sum of a step

  std::vector<double> field(const std::string& name) const;
};

// Trains on as many processes, each on one processor; see run_processes().
MeasuredRun train_on(int ranks, const Training& training, const Decorate& decorate = nullptr);

}  // namespace dtrain
