#include "dtrain/core/device/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <sys/mman.h>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <sanitizer/asan_interface.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

std::size_t block_size(std::size_t bytes) {
  return std::max(alignment, round_up(bytes, alignment));
}

double mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// Address space of a region. It costs nothing, unless the process may have little of it.
std::size_t span_of_region(std::uint64_t limit) {
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    return std::size_t{64} << 20;
  }
  return limit != 0 ? round_up(limit, huge_page) : std::size_t{64} << 30;
}

}  // namespace

// Note [One region]: blocks are cut from one region of address space that grows at its end, the
// smallest free piece that is large enough first; neighbours that are free become one. So the
// outputs of a pass and the short-lived scratch memory of its operators lie side by side without
// holes between, what the process takes from the system is close to the most that was in use at
// once, and a step that asks for the same sizes in the same order gets the same places.
//
// Shared by the allocator and its blocks, whichever lives longer.
class AllocatorPool {
 public:
  AllocatorPool(std::string name, std::uint64_t limit) : name_(std::move(name)), limit_(limit) {}
  ~AllocatorPool() {
    for (const Region& region : regions_) {
      // The addresses may serve others next.
      ASAN_UNPOISON_MEMORY_REGION(region.begin, region.committed - region.begin);
      ::munmap(region.mapped, region.end - region.mapped);
    }
  }

  void* take(std::size_t size, std::size_t requested, std::string_view who) {
    std::lock_guard lock(mutex_);
    auto found = free_.lower_bound({size, nullptr});
    if (found == free_.end()) {
      // A request that wrapped around is more than there is, too.
      if (size < requested || !grow(size)) throw_out_of_memory(requested, who);
      found = free_.lower_bound({size, nullptr});
    }
    char* const at = found->second;
    Block& block = blocks_.find(at)->second;
    if (block.size > size) {
      const auto rest = blocks_.emplace(at + size, Block{.size = block.size - size}).first;
      try {
        free_.emplace(rest->second.size, rest->first);
      } catch (const std::bad_alloc&) {
        blocks_.erase(rest);
        throw;
      }
      block.size = size;
    }
    block.place = free_.extract(found);
    ASAN_UNPOISON_MEMORY_REGION(at, requested);
    stats_.allocated += size;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    return at;
  }

  void give_back(void* data) noexcept {
    std::lock_guard lock(mutex_);
    auto block = blocks_.find(static_cast<char*>(data));
    ASAN_POISON_MEMORY_REGION(data, block->second.size);
    stats_.allocated -= block->second.size;
    FreeList::node_type place = std::move(block->second.place);
    const auto swallow = [&](auto into, auto from) {
      into->second.size += from->second.size;
      blocks_.erase(from);
    };
    const auto next = std::next(block);
    if (next != blocks_.end() && !next->second.begins_region && !next->second.place) {
      free_.erase({next->second.size, next->first});
      swallow(block, next);
    }
    if (block != blocks_.begin() && !block->second.begins_region) {
      const auto before = std::prev(block);
      if (!before->second.place) {
        free_.erase({before->second.size, before->first});
        swallow(before, block);
        block = before;
      }
    }
    place.value() = {block->second.size, block->first};
    free_.insert(std::move(place));
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
  // Pieces that nobody uses, by size and place.
  using FreeList = std::set<std::pair<std::size_t, char*>>;
  struct Block {
    std::size_t size = 0;
    bool begins_region = false;
    FreeList::node_type place = {};  // its entry of the free list while in use; else empty
  };
  struct Region {
    char* mapped;  // what munmap takes
    char* begin;
    char* committed;  // end of what may be touched
    char* end;
  };

  // Makes a free block of at least `size` at the end of a region. False if there is no more.
  bool grow(std::size_t size) {
    if (grow_once(size)) return true;
    release_cached_locked();
    return grow_once(size);
  }

  bool grow_once(std::size_t size) {
    if (regions_.empty()) {
      if (!add_region(size)) return false;
    }
    std::size_t tail = free_tail(regions_.back());
    if (size - tail > static_cast<std::size_t>(regions_.back().end - regions_.back().committed)) {
      if (!add_region(size)) return false;
      tail = 0;
    }
    Region& region = regions_.back();
    // Where much is taken, so much at once that the system can give huge pages.
    std::size_t more = round_up(size - tail, page);
    if (stats_.reserved >= 8 * huge_page) {
      const std::size_t room = region.end - region.committed;
      const std::size_t left = limit_ == 0 ? room : limit_ - std::min(limit_, stats_.reserved);
      more = std::max(more, std::min({round_up(more, huge_page), room, left / page * page}));
    }
    if (limit_ != 0 && stats_.reserved + more > limit_) return false;
    ++stats_.system_calls;
    if (::mprotect(region.committed, more, PROT_READ | PROT_WRITE) != 0) return false;
    ASAN_POISON_MEMORY_REGION(region.committed, more);
    extend_tail(region, more);
    stats_.reserved += more;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    return true;
  }

  bool add_region(std::size_t size) {
    for (std::size_t span = std::max(span_of_region(limit_), round_up(size, huge_page));
         span >= size; span /= 2) {
      const std::size_t bytes = span + huge_page;  // so that it can begin on the border of one
      if (bytes < span) return false;
      void* const mapped =
          ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) continue;
      ::madvise(mapped, bytes, MADV_HUGEPAGE);  // a wish: not all systems have them
      char* const first = static_cast<char*>(mapped);
      char* const begin =
          first + (huge_page - reinterpret_cast<std::uintptr_t>(first) % huge_page) % huge_page;
      regions_.push_back({first, begin, begin, first + bytes});
      return true;
    }
    return false;
  }

  // The block at the end of what a region has committed, if it is free.
  std::map<char*, Block>::iterator tail_block(const Region& region) {
    auto block = blocks_.lower_bound(region.committed);
    if (block == blocks_.begin()) return blocks_.end();
    --block;
    const bool ends_here =
        block->first >= region.begin && block->first + block->second.size == region.committed;
    return ends_here && !block->second.place ? block : blocks_.end();
  }
  std::size_t free_tail(const Region& region) {
    const auto tail = tail_block(region);
    return tail == blocks_.end() ? 0 : tail->second.size;
  }

  void extend_tail(Region& region, std::size_t more) {
    auto tail = tail_block(region);
    if (tail == blocks_.end()) {
      tail = blocks_
                 .emplace(region.committed,
                          Block{.size = 0, .begins_region = region.committed == region.begin})
                 .first;
    } else {
      free_.erase({tail->second.size, tail->first});
    }
    tail->second.size += more;
    free_.emplace(tail->second.size, tail->first);
    region.committed += more;
  }

  [[noreturn]] void throw_out_of_memory(std::size_t requested, std::string_view who) const {
    const bool limited = limit_ != 0 && stats_.reserved + requested > limit_;
    throw DeviceError(fmt::format(
        "{}: out of memory: {} asked for {:.1f} MiB; {:.1f} MiB are in use, {:.1f} MiB reserved, "
        "{}; use a smaller batch.micro, or fewer cores per process (fewer lanes at once)",
        name_, who, mebibytes(requested), mebibytes(stats_.allocated), mebibytes(stats_.reserved),
        limited ? fmt::format("the limit is {:.1f} MiB", mebibytes(limit_))
                : std::string("the system has no more")));
  }

  // The ends of regions go back; the pages of holes do, too, and come again as zeros when touched.
  void release_cached_locked() {
    for (Region& region : regions_) {
      const auto tail = tail_block(region);
      if (tail == blocks_.end()) continue;
      const std::size_t used = tail->first - region.begin;
      char* const keep = region.begin + round_up(used, page);
      const std::size_t bytes = region.committed - keep;
      if (bytes == 0) continue;
      free_.erase({tail->second.size, tail->first});
      tail->second.size -= bytes;
      if (tail->second.size == 0) {
        blocks_.erase(tail);
      } else {
        free_.emplace(tail->second.size, tail->first);
      }
      ASAN_UNPOISON_MEMORY_REGION(keep, bytes);
      ::madvise(keep, bytes, MADV_DONTNEED);
      ::mprotect(keep, bytes, PROT_NONE);
      region.committed = keep;
      stats_.reserved -= bytes;
    }
    for (const auto& [size, at] : free_) {
      const auto address = reinterpret_cast<std::uintptr_t>(at);
      const std::size_t skip = round_up(address, page) - address;
      if (size < skip + page) continue;
      ::madvise(at + skip, (size - skip) / page * page, MADV_DONTNEED);
    }
  }

  const std::string name_;
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::map<char*, Block> blocks_;  // by address, in use and free
  FreeList free_;
  std::vector<Region> regions_;
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
  if (data_ != nullptr) pool_->give_back(data_);
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
