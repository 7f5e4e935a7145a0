// Evaluation: each sample once at any number of processes, cut into the same slots and micro-
// batches as training, added in the same tree.
#pragma once

#include <memory>

#include "dtrain/core/metrics/metric.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/loss.h"
#include "dtrain/data/batch_plan.h"
#include "dtrain/data/loader.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/train/lanes.h"

namespace dtrain {

// Collective. The same sums on all ranks. Throws a lane's error on the rank that had it, and
// CommError on the others.
MetricSums evaluate_samples(Communicator& comm, const Module& model, const Loss& loss,
                            const ParameterArena& weights, const BatchPlan& plan, Loader& loader,
                            Lanes& lanes);

}  // namespace dtrain
