// The heart of a step: forward and backward of this rank's virtual ranks, wave by wave, while the
// reducer sums what is finished.
//
// An error in a lane does not leave the others waiting: it is latched, the lane's parameters are
// reported finished as they are, the sums run as on every rank, and the vote at the step border
// ends the run everywhere.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "dtrain/core/metrics/metric.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/loss.h"
#include "dtrain/data/batch_plan.h"
#include "dtrain/data/loader.h"
#include "dtrain/parallel/reduce/reducer.h"
#include "dtrain/parallel/train/fault.h"
#include "dtrain/parallel/train/lanes.h"
#include "dtrain/parallel/train/sync_meeting.h"

namespace dtrain {

// Which batch a step trains on.
struct StepPosition {
  std::int64_t step = 0;   // the step under way, counted from 1
  std::int64_t batch = 0;  // batches consumed before it, skipped ones included
  std::int64_t epoch = 0;
  std::int64_t batch_in_epoch = 0;
};

// A sample and its position in the global batch.
struct SampleId {
  std::int64_t position = 0;
  std::int64_t id = 0;
};

struct GradientReport {
  std::vector<MetricSums> metrics;  // of this rank's virtual ranks, in order
  std::vector<SampleId> ids;        // samples that this rank saw; only if asked for
  std::vector<bool> used;           // [parameter] got a gradient from the loss
  std::exception_ptr error;         // the first that a lane latched
  bool consequence = false;         // the error came of another rank's: Note [Meeting in a pass]
};

class GradientStep {
 public:
  // Everything outlives this. `seed_gradient`: what backward is seeded with. `meeting`: where
  // layers pool over the virtual ranks, all of which then run at once; or null. `input`: of a
  // sample.
  GradientStep(const Module& model, const Loss& loss, const BatchPlan& plan, Loader& loader,
               Reducer& reducer, Lanes& lanes, RandomKey key, float seed_gradient,
               SyncMeeting* meeting, FieldSpec input);

  // Leaves the summed gradients in reducer.gradients(). Throws only CommError.
  GradientReport run(const ParameterArena& weights, const StepPosition& position,
                     std::span<const Fault> faults, bool want_ids);

 private:
  struct LaneTask;
  void run_lane(const LaneTask& task);
  void run_virtual_rank(const LaneTask& task, const std::function<void(int)>& finished);
  void latch(const LaneTask& task, const std::exception_ptr& error);
  // Micro-batches with samples that virtual rank v has.
  std::int64_t micro_batches(const StepPosition& at, std::int64_t v) const;

  const Module& model_;
  const Loss& loss_;
  const BatchPlan& plan_;
  Loader& loader_;
  Reducer& reducer_;
  Lanes& lanes_;
  const RandomKey key_;
  const float seed_gradient_;
  SyncMeeting* const meeting_;
  const FieldSpec input_;
  std::mutex mutex_;  // of the report while lanes run
};

// What a metric sums of one micro-batch.
MetricSums metrics_of(const LossReport& report, std::int64_t samples);

}  // namespace dtrain
