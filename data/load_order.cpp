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
  const std::int64_t before_last = (batches - 1) * items_of_full_batch();
  items_per_epoch_ = before_last + items_of_batch(batches - 1);
  first_ = request.batch_in_epoch < batches ? request.batch_in_epoch * items_of_full_batch()
                                            : items_per_epoch_;
  // A process whose virtual ranks have no sample in any batch has nothing to load.
  size_ = items_per_epoch_ > 0 ? INT64_MAX : 0;
  if (request.last_epoch >= 0) {
    const std::int64_t epochs = std::max<std::int64_t>(request.last_epoch - request.epoch, 0);
    std::int64_t items = 0;
    if (!__builtin_mul_overflow(epochs, items_per_epoch_, &items)) {
      size_ = std::max<std::int64_t>(items - first_, 0);
    }
  }
}

std::int64_t LoadOrder::items_of_batch(std::int64_t batch_in_epoch) const {
  const BatchPlan& plan = request_.plan;
  // Positions fill micro-batches from the front, across virtual ranks.
  const std::int64_t filled = (plan.batch_size(batch_in_epoch) + plan.micro - 1) / plan.micro;
  return std::clamp<std::int64_t>(filled - request_.first_virtual_rank * plan.accumulate, 0,
                                  items_of_full_batch());
}

namespace {

// One wave of a batch: `items` micro-batches fill its lanes one after the other, so the first
// lanes have all of theirs, one may have a part, and the others have none.
struct Wave {
  std::int64_t items = 0;
  std::int64_t accumulate = 1;
  std::int64_t full() const { return items / accumulate; }  // lanes
  std::int64_t part() const { return items % accumulate; }  // micro-batches of the lane behind them
  std::int64_t items_with_part() const { return part() * (full() + 1); }
};

}  // namespace

LoadItem LoadOrder::item(std::int64_t number) const {
  const BatchPlan& plan = request_.plan;
  const std::int64_t from_epoch = first_ + number;
  const std::int64_t in_epoch = from_epoch % items_per_epoch_;
  const std::int64_t batch =
      std::min(in_epoch / items_of_full_batch(), plan.batches_per_epoch() - 1);
  const std::int64_t in_batch = in_epoch - batch * items_of_full_batch();
  const std::int64_t per_wave = request_.lanes * plan.accumulate;
  const std::int64_t wave = in_batch / per_wave;
  const Wave shape{std::min(items_of_batch(batch) - wave * per_wave, per_wave), plan.accumulate};
  std::int64_t in_wave = in_batch % per_wave;
  LoadItem item{.epoch = request_.epoch + from_epoch / items_per_epoch_,
                .batch_in_epoch = batch,
                .virtual_rank = request_.first_virtual_rank + wave * request_.lanes,
                .micro_batch = 0};
  std::int64_t lanes = shape.full() + 1;
  if (in_wave >= shape.items_with_part()) {
    in_wave -= shape.items_with_part();
    item.micro_batch = shape.part();
    lanes = shape.full();
  }
  item.micro_batch += in_wave / lanes;
  item.virtual_rank += in_wave % lanes;
  return item;
}

std::int64_t LoadOrder::number(const LoadItem& item) const {
  const BatchPlan& plan = request_.plan;
  const std::int64_t v = item.virtual_rank - request_.first_virtual_rank;
  const std::int64_t epoch = item.epoch - request_.epoch;
  DTRAIN_CHECK(epoch >= 0 && item.batch_in_epoch >= 0 &&
                   item.batch_in_epoch < plan.batches_per_epoch() && v >= 0 &&
                   v < virtual_ranks() && item.micro_batch >= 0 &&
                   item.micro_batch < plan.accumulate && positions(item).size() > 0,
               "epoch {}, batch {}, virtual rank {}, micro-batch {} is not in the request",
               item.epoch, item.batch_in_epoch, item.virtual_rank, item.micro_batch);
  const std::int64_t per_wave = request_.lanes * plan.accumulate;
  const std::int64_t wave = v / request_.lanes;
  const std::int64_t lane = v % request_.lanes;
  const Wave shape{std::min(items_of_batch(item.batch_in_epoch) - wave * per_wave, per_wave),
                   plan.accumulate};
  const std::int64_t in_wave =
      item.micro_batch < shape.part()
          ? item.micro_batch * (shape.full() + 1) + lane
          : shape.items_with_part() + (item.micro_batch - shape.part()) * shape.full() + lane;
  const std::int64_t number = epoch * items_per_epoch_ - first_ +
                              item.batch_in_epoch * items_of_full_batch() + wave * per_wave +
                              in_wave;
  DTRAIN_CHECK(number >= 0 && number < size_,
               "epoch {}, batch {}, virtual rank {}, micro-batch {} is not in the request",
               item.epoch, item.batch_in_epoch, item.virtual_rank, item.micro_batch);
  return number;
}

}  // namespace dtrain
