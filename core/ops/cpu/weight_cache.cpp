#include "dtrain/core/ops/weight_cache.h"

#include "dtrain/core/ops/cpu/library.h"

namespace dtrain {

WeightCache::WeightCache(Allocator& allocator) : impl_(std::make_unique<Impl>(allocator)) {}

WeightCache::~WeightCache() = default;

void WeightCache::begin_step() {
  impl_->begin_step();
}

void WeightCache::Impl::begin_step() {
  std::lock_guard lock(mutex_);
  ++step_;
}

const void* WeightCache::Impl::packed(const void* source, const dnnl::memory::desc& order,
                                      const std::function<void(void*)>& pack) {
  std::unique_lock lock(mutex_);
  std::list<Entry>& entries = entries_[source];
  auto entry = entries.begin();
  while (entry != entries.end() && entry->order != order) ++entry;
  if (entry == entries.end()) {
    entry = entries.insert(
        entries.end(),
        Entry{.order = order, .memory = allocator_.allocate(order.get_size(), "packed weights")});
  }
  while (entry->ready_in != step_) {
    if (entry->busy) {
      changed_.wait(lock);
      continue;
    }
    entry->busy = true;
    lock.unlock();
    try {
      pack(entry->memory.data());
    } catch (...) {
      // Whoever waits tries for itself.
      lock.lock();
      entry->busy = false;
      changed_.notify_all();
      throw;
    }
    lock.lock();
    entry->busy = false;
    entry->ready_in = step_;
    changed_.notify_all();
  }
  return entry->memory.data();
}

void use_weight_cache(OpContext& context, WeightCache* cache) {
  context.library().weights = cache == nullptr ? nullptr : &cache->impl();
}

}  // namespace dtrain
