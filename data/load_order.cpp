#include "dtrain/data/load_order.h"

#include <algorithm>

#include "dtrain/core/base/error.h"

namespace dtrain {

LoadOrder::LoadOrder(const LoadRequest& request) : request_(request) {
  const BatchPlan& plan = request.plan;
  DTRAIN_CHECK(plan.samples > 0 && plan.micro > 0 && plan.accumulate > 0 &&
                   plan.global == plan.virtual_ranks * plan.accumulate * plan.micro,
               "batch plan of {} samples: {} = {} * {} * {}", plan.samples, plan.global,
               plan.virtual_ranks, plan.accumulate, plan.micro);
  DTRAIN_CHECK(request.first_virtual_rank >= 0 && virtual_ranks() > 0 &&
                   request.last_virtual_rank <= plan.virtual_ranks && request.lanes > 0,
               "virtual ranks {} to {} of {} on {} lanes", request.first_virtual_rank,
               request.last_virtual_rank, plan.virtual_ranks, request.lanes);
  DTRAIN_CHECK(request.epoch >= 0 && request.batch_in_epoch >= 0 &&
                   request.batch_in_epoch <= plan.batches_per_epoch(),
               "epoch {}, batch {} of {}", request.epoch, request.batch_in_epoch,
               plan.batches_per_epoch());
  const std::int64_t batches = plan.batches_per_epoch();
  first_batch_ = request.epoch * batches + request.batch_in_epoch;
  size_ = request.last_epoch < 0
              ? INT64_MAX
              : std::max<std::int64_t>(request.last_epoch * batches - first_batch_, 0) *
                    items_per_batch();
}

LoadItem LoadOrder::item(std::int64_t number) const {
  const std::int64_t batch = first_batch_ + number / items_per_batch();
  const std::int64_t in_batch = number % items_per_batch();
  const std::int64_t accumulate = request_.plan.accumulate;
  const std::int64_t wave = in_batch / (request_.lanes * accumulate);
  const std::int64_t in_wave = in_batch % (request_.lanes * accumulate);
  // The last wave may leave lanes without work.
  const std::int64_t lanes =
      std::min<std::int64_t>(request_.lanes, virtual_ranks() - wave * request_.lanes);
  return {.epoch = batch / request_.plan.batches_per_epoch(),
          .batch_in_epoch = batch % request_.plan.batches_per_epoch(),
          .virtual_rank = request_.first_virtual_rank + wave * request_.lanes + in_wave % lanes,
          .micro_batch = in_wave / lanes};
}

std::int64_t LoadOrder::number(const LoadItem& item) const {
  const BatchPlan& plan = request_.plan;
  const std::int64_t batch =
      item.epoch * plan.batches_per_epoch() + item.batch_in_epoch - first_batch_;
  const std::int64_t v = item.virtual_rank - request_.first_virtual_rank;
  const std::int64_t wave = v / request_.lanes;
  const std::int64_t lanes =
      std::min<std::int64_t>(request_.lanes, virtual_ranks() - wave * request_.lanes);
  const std::int64_t number = batch * items_per_batch() + wave * request_.lanes * plan.accumulate +
                              item.micro_batch * lanes + v % request_.lanes;
  DTRAIN_CHECK(batch >= 0 && item.batch_in_epoch < plan.batches_per_epoch() && v >= 0 &&
                   v < virtual_ranks() && item.micro_batch >= 0 &&
                   item.micro_batch < plan.accumulate && number < size_,
               "epoch {}, batch {}, virtual rank {}, micro-batch {} is not in the request",
               item.epoch, item.batch_in_epoch, item.virtual_rank, item.micro_batch);
  return number;
}

}  // namespace dtrain
