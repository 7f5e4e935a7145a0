#include "dtrain/core/device/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr std::size_t alignment = 64;

// Sizes are rounded to eight steps per power of two, so that a cached block serves requests of
// nearly its size and at most an eighth is wasted.
std::size_t block_size(std::size_t bytes) {
  if (bytes <= 8 * alignment) {
    return std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

double mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

// Free blocks by size, shared by the allocator and its blocks, whichever lives longer.
class AllocatorPool {
 public:
  AllocatorPool(std::string name, std::uint64_t limit) : name_(std::move(name)), limit_(limit) {}
  ~AllocatorPool() { release_cached(); }

  void* take(std::size_t size, std::size_t requested, std::string_view who) {
    std::lock_guard lock(mutex_);
    void* data = nullptr;
    if (auto found = free_.find(size); found != free_.end() && !found->second.empty()) {
      data = found->second.back();
      found->second.pop_back();
    } else {
      data = take_from_system(size, requested, who);
    }
    stats_.allocated += size;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    return data;
  }

  void give_back(void* data, std::size_t size) noexcept {
    std::lock_guard lock(mutex_);
    stats_.allocated -= size;
    try {
      free_[size].push_back(data);
    } catch (const std::bad_alloc&) {
      std::free(data);
      stats_.reserved -= size;
    }
  }

  void release_cached() {
    std::lock_guard lock(mutex_);
    release_cached_locked();
  }

  AllocatorStats stats() const {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_reserved = stats_.reserved;
  }

 private:
  void* take_from_system(std::size_t size, std::size_t requested, std::string_view who) {
    const auto over_limit = [&] { return limit_ != 0 && stats_.reserved + size > limit_; };
    if (over_limit()) release_cached_locked();
    ++stats_.system_calls;
    void* data = over_limit() ? nullptr : std::aligned_alloc(alignment, size);
    if (data == nullptr && !over_limit()) {
      release_cached_locked();
      data = std::aligned_alloc(alignment, size);
    }
    if (data == nullptr) {
      throw DeviceError(fmt::format(
          "{}: out of memory: {} asked for {:.1f} MiB; {:.1f} MiB are in use, {:.1f} MiB reserved, "
          "{}; use a smaller batch.micro, or fewer cores per process (fewer lanes at once)",
          name_, who, mebibytes(requested), mebibytes(stats_.allocated), mebibytes(stats_.reserved),
          limit_ == 0 ? std::string("the system has no more")
                      : fmt::format("the limit is {:.1f} MiB", mebibytes(limit_))));
    }
    stats_.reserved += size;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    return data;
  }

  void release_cached_locked() {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) std::free(block);
      stats_.reserved -= size * blocks.size();
      blocks.clear();
    }
  }

  const std::string name_;
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<void*>> free_;
  AllocatorStats stats_;
};

MemoryBlock::MemoryBlock(std::shared_ptr<AllocatorPool> pool, void* data, std::size_t bytes)
    : pool_(std::move(pool)), data_(data), bytes_(bytes) {}

MemoryBlock::MemoryBlock(MemoryBlock&& other) noexcept
    : pool_(std::move(other.pool_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBlock& MemoryBlock::operator=(MemoryBlock&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryBlock::~MemoryBlock() {
  if (data_ != nullptr) pool_->give_back(data_, block_size(bytes_));
}

Allocator::Allocator(std::string name, std::uint64_t limit)
    : pool_(std::make_shared<AllocatorPool>(std::move(name), limit)) {}

MemoryBlock Allocator::allocate(std::size_t bytes, std::string_view who) {
  return {pool_, pool_->take(block_size(bytes), bytes, who), bytes};
}

AllocatorStats Allocator::stats() const {
  return pool_->stats();
}
void Allocator::reset_peak() {
  pool_->reset_peak();
}
void Allocator::release_cached() {
  pool_->release_cached();
}

}  // namespace dtrain
