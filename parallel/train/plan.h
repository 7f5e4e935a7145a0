// Everything about a run that follows from recipe and placement before a step is made: checked
// once by the launcher, printed by `dtrain check`, and made again by every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtrain/core/nn/arena.h"
#include "dtrain/data/batch_plan.h"
#include "dtrain/data/dataset.h"
#include "dtrain/parallel/comm/direct/available_memory.h"
#include "dtrain/parallel/reduce/bucket_plan.h"
#include "dtrain/parallel/train/registry.h"

namespace dtrain {

struct RunPlan {
  std::shared_ptr<const Dataset> train_data;
  std::shared_ptr<const Dataset> validation_data;  // null if the recipe has none
  std::unique_ptr<Module> model;
  std::unique_ptr<ArenaLayout> layout;
  BatchPlan batches;
  BatchPlan validation_batches;
  std::int64_t epochs = 0;  // 0 if the recipe counts steps
  std::int64_t steps = 0;   // optimizer steps of the whole run
  // Targets of a full step: samples, or numbers for a loss of numbers. Note [Counts, not means].
  double nominal_targets = 1;
  BucketPlan buckets;
  int ranks = 1;
  int cores = 1;              // of a process
  int lanes = 1;              // virtual ranks that a process runs side by side
  bool synchronized = false;  // layers pool over the virtual ranks: all run at once
  // Bytes of the process that needs most: weights, optimizer state, gradient arenas (shared
  // memory), and what the activations of its lanes were estimated at.
  std::uint64_t weight_bytes = 0;
  std::uint64_t optimizer_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t process_bytes() const {
    return weight_bytes + optimizer_bytes + gradient_bytes + activation_bytes;
  }
  std::vector<std::string> warnings;  // idle cores, oversubscription, ...
};

// Opens the data, builds the model, and checks that recipe and placement fit together: sizes of
// model and data, loss and targets, R <= V, cores. Throws ConfigError or DataError. `local_ranks`
// is the number of processes on this machine.
RunPlan make_plan(const Config& config, const Registry& registry, int ranks, int local_ranks);

// Nothing if training with `local_ranks` processes on this machine has the memory that it is
// estimated to need; else one line that says how much there is, and what to change.
std::string memory_shortage(const RunPlan& plan, int local_ranks,
                            const AvailableMemory& available = available_memory());

// One row of the model table: a parameter or buffer, in registration order.
struct ModelRow {
  std::string name;
  Shape shape;
  std::int64_t elements = 0;
  bool buffer = false;
};
std::vector<ModelRow> model_table(const ArenaLayout& layout);

}  // namespace dtrain
