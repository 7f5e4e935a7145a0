// The order in which the lanes of a process use micro-batches, as a function of a running number
// and back.
//
// Within a batch: wave by wave, in a wave micro-batch by micro-batch, and there lane by lane. So
// no lane waits for one that another lane does not need before. Only micro-batches that have
// positions are numbered: a short batch may have a few samples and two thousand million empty
// micro-batches, and nobody walks through those.
#pragma once

#include <cstdint>

#include "dtrain/data/batch_plan.h"
#include "dtrain/data/loader.h"

namespace dtrain {

// One micro-batch of a run.
struct LoadItem {
  std::int64_t epoch = 0;
  std::int64_t batch_in_epoch = 0;
  std::int64_t virtual_rank = 0;
  std::int64_t micro_batch = 0;
  friend bool operator==(const LoadItem&, const LoadItem&) = default;
};

class LoadOrder {
 public:
  // Throws InternalError for a request that makes no sense.
  explicit LoadOrder(const LoadRequest& request);

  // Micro-batches with positions of the whole request; INT64_MAX if it is endless (or longer).
  std::int64_t size() const { return size_; }
  // The item with that number, counted from the request's first batch.
  LoadItem item(std::int64_t number) const;
  // Throws InternalError for an item that the request does not have, or that has no positions.
  std::int64_t number(const LoadItem& item) const;
  // Positions in the batch of an item's samples.
  PositionRange positions(const LoadItem& item) const {
    return request_.plan.micro_batch(item.batch_in_epoch, item.virtual_rank, item.micro_batch);
  }
  const BatchPlan& plan() const { return request_.plan; }

 private:
  std::int64_t virtual_ranks() const {
    return request_.last_virtual_rank - request_.first_virtual_rank;
  }
  std::int64_t items_of_full_batch() const { return virtual_ranks() * request_.plan.accumulate; }
  // Items of a batch of the epoch; only the last one may have fewer than a full batch.
  std::int64_t items_of_batch(std::int64_t batch_in_epoch) const;

  LoadRequest request_;
  std::int64_t items_per_epoch_ = 0;
  std::int64_t first_ = 0;  // items of the request's first epoch that lie before the request
  std::int64_t size_ = 0;
};

}  // namespace dtrain
