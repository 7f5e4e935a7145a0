// The training loop of one rank. train() builds one; a program that wants to drive steps itself
// (a benchmark, a test) can too.
//
//   Trainer trainer(config, registry, comm, plan, options);
//   RunResult result = trainer.run();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/optim/gradient_norm.h"
#include "dtrain/core/optim/schedule.h"
#include "dtrain/parallel/train/evaluation.h"
#include "dtrain/parallel/train/fault.h"
#include "dtrain/parallel/train/gradient_step.h"
#include "dtrain/parallel/train/plan.h"
#include "dtrain/parallel/train/replica.h"
#include "dtrain/parallel/train/run_record.h"
#include "dtrain/parallel/train/skipped_samples.h"
#include "dtrain/parallel/train/train.h"
#include "dtrain/parallel/train/vote.h"

namespace dtrain {

class Trainer {
 public:
  // Collective: agrees with the other ranks, then initializes or resumes. `plan` must be of this
  // config and as many ranks as `comm` has. `pass_comm`: another group of the same ranks, for
  // collectives inside a pass; needed if the plan is synchronized. All arguments outlive the
  // trainer.
  Trainer(const Config& config, Communicator& comm, const RunPlan& plan, const RunOptions& options,
          const std::string& cpu_isa, Communicator* pass_comm = nullptr);
  ~Trainer();

  // Collective: trains until the end of the recipe, a stop or an error (thrown).
  RunResult run();

 private:
  // Numbers of the run that a checkpoint keeps.
  struct Progress {
    std::int64_t step = 0;   // updates applied
    std::int64_t batch = 0;  // batches consumed
    std::int64_t samples_seen = 0;
    std::int64_t skipped = 0;
    std::int64_t skipped_in_a_row = 0;
    double train_seconds = 0;
    std::optional<double> last_loss;
    MetricSums epoch;  // of the epoch under way
    std::int64_t evaluations_without_gain = 0;
    std::optional<double> best_loss;
    std::int64_t best_step = 0;
    nlohmann::ordered_json best;
    nlohmann::ordered_json validation;  // the last one
    std::int64_t validated_step = -1;
  };

  void start();
  bool finished() const;
  bool summary_says_done() const;
  void train_step();
  // Decides about non-finite numbers and steps without a target; true if the update is applied.
  bool accept_numbers(const MetricSums& metrics, double norm, std::int64_t step);
  void check_unused(const std::vector<bool>& used);
  void report_skipped_samples();
  [[noreturn]] void throw_empty_epoch(std::int64_t epoch);
  void at_border();
  bool validate();                                // true if the loss is the best so far
  std::optional<double> validation_loss() const;  // measured at this step, if any
  void save(bool last = false);
  void restore(const checkpoint::RunState& state);
  checkpoint::RunState state() const;
  RunResult finish();
  // `lost`: the weights of the last step could not be saved.
  nlohmann::ordered_json summary(RunEnd end, bool lost);
  void show(RankPhase phase) const;

  const Config& config_;
  const config::TrainConfig& values_;
  Communicator& comm_;
  const RunPlan& plan_;
  const RunOptions& options_;
  const std::string cpu_isa_;
  const bool first_rank_;

  Lanes lanes_;
  std::unique_ptr<Loss> loss_;
  Replica replica_;
  Schedule schedule_;
  std::vector<ParameterRange> ranges_;
  Reducer reducer_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Loader> validation_loader_;
  Communicator* const pass_comm_;
  std::unique_ptr<SyncMeeting> meeting_;  // null unless the plan is synchronized
  GradientStep gradient_step_;
  std::vector<Fault> faults_;

  const TokenMetrics token_metrics_;
  const std::string recipe_text_;  // config.yaml of the run, and of each checkpoint
  Progress progress_;
  bool already_finished_ = false;  // resumed a finished run
  bool early_stop_ = false;
  bool made_a_step_ = false;
  bool judged_unused_ = false;      // parameters that no loss depends on
  bool epoch_has_targets_ = false;  // a step of the epoch under way had something to learn from
  std::int64_t epoch_samples_ = 0;  // of the epoch under way, since it began or was resumed
  SkippedSamples skipped_samples_;  // that this rank met
  std::int64_t saved_step_ = -1;
  std::int64_t resumed_step_ = -1;  // of the checkpoint that the run went on from
  Ballot decision_;
  std::exception_ptr pending_error_;  // of rank 0's files; brought to the next vote
  TimePoint run_start_;
  TimePoint step_end_;
  std::unique_ptr<CheckpointWriter> writer_;  // rank 0
  std::unique_ptr<RunRecord> record_;
};

// Loader of the recipe's training or validation data.
std::unique_ptr<Loader> make_loader(const config::TrainConfig& values,
                                    std::shared_ptr<const Dataset> dataset, bool training);

}  // namespace dtrain
