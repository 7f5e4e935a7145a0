#include "dtrain/data/batch_plan.h"

#include <algorithm>

#include "dtrain/core/base/error.h"

namespace dtrain {

std::int64_t BatchPlan::batch_size(std::int64_t batch_in_epoch) const {
  DTRAIN_CHECK(batch_in_epoch >= 0 && batch_in_epoch < batches_per_epoch(), "batch {} of {}",
               batch_in_epoch, batches_per_epoch());
  return std::min(global, samples - batch_in_epoch * global);
}

PositionRange BatchPlan::micro_batch(std::int64_t batch_in_epoch, std::int64_t v,
                                     std::int64_t m) const {
  DTRAIN_CHECK(v >= 0 && v < virtual_ranks && m >= 0 && m < accumulate,
               "virtual rank {} of {}, micro-batch {} of {}", v, virtual_ranks, m, accumulate);
  const std::int64_t size = batch_size(batch_in_epoch);
  const std::int64_t first = std::min(v * accumulate * micro + m * micro, size);
  return {first, std::min(first + micro, size)};
}

}  // namespace dtrain
