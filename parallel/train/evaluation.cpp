#include "dtrain/parallel/train/evaluation.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "dtrain/parallel/reduce/sum_tree.h"
#include "dtrain/parallel/train/gather.h"
#include "dtrain/parallel/train/gradient_step.h"
#include "dtrain/parallel/train/vote.h"

namespace dtrain {

Evaluation evaluate_samples(Communicator& comm, const Module& model, const Loss& loss,
                            const ParameterArena& weights, const BatchPlan& plan, Loader& loader,
                            Lanes& lanes, const std::atomic<int>* stop_signal) {
  const auto signal = [&] { return stop_signal != nullptr ? stop_signal->load() : 0; };
  const VirtualRange range = virtual_range(plan.virtual_ranks, comm.rank(), comm.size());
  std::vector<MetricSums> metrics(range.size());
  std::mutex mutex;
  std::exception_ptr error;
  const int used_lanes = static_cast<int>(std::min<std::int64_t>(lanes.size(), range.size()));
  loader.start({.plan = plan,
                .epoch = 0,
                .batch_in_epoch = 0,
                .last_epoch = 1,
                .first_virtual_rank = range.first,
                .last_virtual_rank = range.last,
                .lanes = used_lanes});
  lanes.run(used_lanes, [&](int lane, OpContext& context) {
    try {
      for (std::int64_t b = 0; b < plan.batches_per_epoch(); ++b) {
        for (std::int64_t v = range.first + lane; v < range.last; v += used_lanes) {
          for (std::int64_t m = 0; m < plan.accumulate; ++m) {
            if (signal() != 0) return;
            if (plan.micro_batch(b, v, m).size() == 0) break;
            const MicroBatch batch = loader.next(0, b, v, m);
            if (batch.size() == 0) continue;
            Pass pass(context,
                      {.weights = weights.weights(),
                       .buffers = weights.buffers(),
                       .gradients = {},
                       .parameters = weights.layout().parameters()},
                      {.training = false, .positions = batch.positions});
            const Value outputs = model.forward(pass, pass.input(batch.inputs));
            metrics[v - range.first] +=
                metrics_of(loss.forward(context, outputs.tensor, batch.targets), batch.size());
          }
        }
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  loader.stop();
  const Ballot decision = vote(comm, {.signal = signal()}, error);
  return {.metrics = sum_metrics(comm, plan.virtual_ranks, metrics),
          .stop_signal = decision.signal};
}

}  // namespace dtrain
