// Evaluation: each sample once at any number of processes, cut into the same slots and micro-
// batches as training, added in the same tree.
#pragma once

#include <atomic>

#include "dtrain/core/metrics/metric.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/loss.h"
#include "dtrain/data/batch_plan.h"
#include "dtrain/data/loader.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/train/lanes.h"

namespace dtrain {

struct Evaluation {
  MetricSums metrics;   // of no use after a stop
  int stop_signal = 0;  // a signal that ended it early, on all ranks
};

// Collective. The same result on all ranks. `stop_signal`, which may be null, is looked at between
// micro-batches. Throws a lane's error on the rank that had it, and CommError on the others.
Evaluation evaluate_samples(Communicator& comm, const Module& model, const Loss& loss,
                            const ParameterArena& weights, const BatchPlan& plan, Loader& loader,
                            Lanes& lanes, const std::atomic<int>* stop_signal);

}  // namespace dtrain
