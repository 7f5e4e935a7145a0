#include "dtrain/parallel/reduce/reducer.h"

#include <algorithm>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/elementwise.h"
#include "dtrain/parallel/comm/plan_tree_sum.h"

namespace dtrain {

namespace {

// Slots stand on page borders: chunks of different ranks then never share a page.
constexpr std::int64_t slot_border = 4096 / sizeof(float);

std::int64_t slot_elements(const ArenaLayout& layout) {
  return (layout.gradient_elements() + slot_border - 1) / slot_border * slot_border;
}

// Runs body(first, count) on all of [0, elements), a range per thread.
template <typename Body>
void for_blocks(ThreadPool& pool, std::int64_t elements, Body body) {
  constexpr std::int64_t block = 4096;
  pool.parallel_for((elements + block - 1) / block, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * block;
    body(static_cast<std::size_t>(begin),
         static_cast<std::size_t>(std::min(last * block, elements) - begin));
  });
}

}  // namespace

int Reducer::slots_needed(std::int64_t virtual_ranks, int rank, int ranks, int lanes,
                          Reduction reduction) {
  const VirtualRange range = virtual_range(virtual_ranks, rank, ranks);
  if (reduction == Reduction::fast) {
    return static_cast<int>(std::min<std::int64_t>(lanes, range.size()));
  }
  return SlotSchedule(SumTree(virtual_ranks), range, lanes).slots();
}

Reducer::Reducer(Communicator& comm, const ArenaLayout& layout, const BucketPlan& plan,
                 std::int64_t virtual_ranks, int lanes, Reduction reduction)
    : comm_(comm),
      plan_(plan),
      reduction_(reduction),
      range_(virtual_range(virtual_ranks, comm.rank(), comm.size())),
      elements_(slot_elements(layout)),
      schedule_(SumTree(virtual_ranks), range_, lanes),
      tree_sum_(plan_tree_sum(SumTree(virtual_ranks), comm.size(), lanes,
                              static_cast<std::size_t>(elements_) * sizeof(float))),
      bucket_of_(layout.parameters().size()),
      pending_(plan.buckets.size()),
      ready_(plan.buckets.size()),
      works_(plan.buckets.size()),
      stream_("reduce") {
  const int slots = slots_needed(virtual_ranks, comm.rank(), comm.size(), lanes, reduction);
  memory_ = comm.allocate(static_cast<std::size_t>(slots * elements_) * sizeof(float));
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const int parameter : plan.buckets[b].parameters) {
      bucket_of_[parameter] = static_cast<int>(b);
    }
  }
  // Under `fast`, lanes that had no virtual rank in the last wave still hold earlier ones; the sum
  // takes them all, and waits for those that are running.
  last_lanes_ = static_cast<int>(schedule_.wave_range(schedule_.waves() - 1).size());
  if (comm.size() == 1) {
    std::vector<Addition> order;
    if (reduction == Reduction::reproducible) {
      std::vector<Node> nodes;
      for (const SlotNode& partial : schedule_.partials()) nodes.push_back(partial.node);
      order = additions(tree_sum_.tree, nodes);
    } else {
      for (int slot = 1; slot < slots; ++slot) order.push_back({0, slot});
    }
    own_sum_.emplace(static_cast<int>(last_slots().size()), order);
  }
}

std::vector<int> Reducer::last_slots() const {
  std::vector<int> slots;
  if (reduction_ == Reduction::reproducible) {
    for (const SlotNode& partial : schedule_.partials()) slots.push_back(partial.slot);
  } else {
    const std::int64_t count =
        static_cast<std::int64_t>(memory_->local().size() / sizeof(float)) / elements_;
    for (int slot = 0; slot < count; ++slot) slots.push_back(slot);
  }
  return slots;
}

Reducer::~Reducer() = default;

std::span<float> Reducer::slot_memory(int slot) {
  const std::span<std::byte> bytes = memory_->local();
  return {reinterpret_cast<float*>(bytes.data()) + slot * elements_,
          static_cast<std::size_t>(elements_)};
}

std::span<float> Reducer::slot(int wave, int lane) {
  return slot_memory(reduction_ == Reduction::fast ? lane : schedule_.leaf_slots(wave)[lane]);
}

std::span<float> Reducer::gradients() {
  return slot_memory(0);
}

void Reducer::begin_step() {
  for (std::size_t b = 0; b < pending_.size(); ++b) {
    pending_[b] = static_cast<std::int64_t>(plan_.buckets[b].parameters.size()) * last_lanes_;
  }
  ready_.assign(ready_.size(), false);
  next_ = 0;
  finite_ = true;
}

void Reducer::finished(int parameter) {
  if (own_sum_) return;
  const int bucket = bucket_of_[parameter];
  // Release what this lane wrote, acquire what the others did.
  if (pending_[bucket].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::lock_guard lock(launch_mutex_);
  ready_[bucket] = true;
  while (next_ < ready_.size() && ready_[next_]) launch(next_++);
}

void Reducer::launch(std::size_t bucket) {
  const auto first = static_cast<std::size_t>(plan_.buckets[bucket].first);
  const auto count = static_cast<std::size_t>(plan_.buckets[bucket].last) - first;
  stream_.submit([this, first, count] { check_finite(first, count); });
  if (reduction_ == Reduction::reproducible) {
    works_[bucket] = comm_.tree_sum(stream_, *memory_, tree_sum_, first, count);
    return;
  }
  const int lanes = static_cast<int>(schedule_.wave_range(0).size());
  stream_.submit([this, first, count, lanes] {
    for (int lane = 1; lane < lanes; ++lane) {
      ops::add_in_place(slot_memory(0).subspan(first, count),
                        slot_memory(lane).subspan(first, count));
    }
  });
  works_[bucket] = comm_.all_reduce(stream_, *memory_, first * sizeof(float), count);
}

// Once summed, a NaN is everybody's: who brought it can only be seen before.
void Reducer::check_finite(std::size_t first, std::size_t count) {
  for (const int slot : last_slots()) {
    if (!ops::all_finite(slot_memory(slot).subspan(first, count))) finite_ = false;
  }
}

void Reducer::end_wave(int wave, ThreadPool& pool) {
  if (own_sum_ && last_wave(wave)) add_last_slots(pool);
  if (reduction_ == Reduction::fast) return;
  const std::vector<Addition>& additions = schedule_.additions_after(wave);
  if (additions.empty()) return;
  for_blocks(pool, elements_, [&](std::size_t first, std::size_t count) {
    for (const Addition& addition : additions) {
      ops::add_in_place(slot_memory(addition.into).subspan(first, count),
                        slot_memory(addition.from).subspan(first, count));
    }
  });
}

void Reducer::add_last_slots(ThreadPool& pool) {
  const std::vector<int> slots = last_slots();
  if (slots == std::vector<int>{0}) return;
  for_blocks(pool, elements_, [&](std::size_t first, std::size_t count) {
    std::vector<const float*> inputs;
    for (const int slot : slots) inputs.push_back(slot_memory(slot).data() + first);
    float* const sum = slot_memory(0).data() + first;
    own_sum_->run(inputs, {&sum, 1}, count);
  });
}

void Reducer::wait() {
  const TimePoint start = Clock::now();
  // Every bucket is waited for, also behind a failed one: no sum may still run when the caller
  // goes on.
  std::exception_ptr error;
  for (Work& work : works_) {
    try {
      work.wait();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  exposed_seconds_ = seconds_since(start);
  if (error) std::rethrow_exception(error);
}

}  // namespace dtrain
