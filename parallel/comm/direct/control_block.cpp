#include "dtrain/parallel/comm/direct/control_block.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/direct/futex.h"

namespace dtrain {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

namespace {

constexpr std::uint64_t control_magic = 0x6474726e63743031;  // "dtrnct01"
constexpr std::size_t page_bytes = 4096;

std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

// About 1 MiB for the whole group.
std::size_t stage_bytes_for(int ranks) {
  const std::size_t share = (std::size_t{1} << 19) / static_cast<std::size_t>(ranks);
  return std::clamp<std::size_t>(share / page_bytes * page_bytes, 16 << 10, 256 << 10);
}

std::size_t stages_offset(int ranks) {
  return round_up(sizeof(ControlBlock::Header) +
                      static_cast<std::size_t>(ranks) * sizeof(ControlBlock::RankSlot),
                  page_bytes);
}

bool of_floats(CollectiveKind kind) {
  return kind == CollectiveKind::tree_sum || kind == CollectiveKind::all_reduce;
}

}  // namespace

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::join:
      return "join";
    case CollectiveKind::allocate:
      return "allocate";
    case CollectiveKind::tree_sum:
      return "tree_sum";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::broadcast:
      return "broadcast";
  }
  return "unknown";
}

std::string to_string(const Collective& c, bool detail) {
  std::string text = name_of(c.kind);
  if (c.kind == CollectiveKind::join || c.kind == CollectiveKind::allocate) return text;
  text += fmt::format(" {}[{}]", of_floats(c.kind) ? "f32" : "u8", c.count);
  if (c.kind == CollectiveKind::broadcast) text += fmt::format(" from rank {}", c.root);
  if (!detail) return text;
  if (of_floats(c.kind)) text += fmt::format(" at {} of memory {}", c.first, c.memory);
  if (c.kind == CollectiveKind::tree_sum) text += fmt::format(" by plan {:016x}", c.plan);
  return text + fmt::format(" in part {} of collective #{}", c.phase, c.sequence);
}

std::uint64_t payload_bytes(const Collective& c) {
  return of_floats(c.kind) ? c.count * sizeof(float) : c.count;
}

std::size_t ControlBlock::bytes_needed(int ranks) {
  return stages_offset(ranks) + 2 * static_cast<std::size_t>(ranks) * stage_bytes_for(ranks);
}

void ControlBlock::create(std::span<std::byte> memory, int ranks) {
  DTRAIN_CHECK(ranks >= 1 && memory.size() >= bytes_needed(ranks), "{} bytes for {} ranks",
               memory.size(), ranks);
  auto* header = new (memory.data()) Header;
  header->ranks = static_cast<std::uint32_t>(ranks);
  header->stage_bytes = stage_bytes_for(ranks);
  for (int r = 0; r < ranks; ++r) {
    new (memory.data() + sizeof(Header) + static_cast<std::size_t>(r) * sizeof(RankSlot)) RankSlot;
  }
  header->magic = control_magic;
}

ControlBlock::ControlBlock(std::span<std::byte> memory, int ranks)
    : ranks_(ranks),
      header_(std::launder(reinterpret_cast<Header*>(memory.data()))),
      slots_(std::launder(reinterpret_cast<RankSlot*>(memory.data() + sizeof(Header)))),
      stages_(memory.data() + stages_offset(ranks)),
      stage_bytes_(stage_bytes_for(ranks)) {
  if (memory.size() < bytes_needed(ranks) || header_->magic != control_magic ||
      header_->ranks != static_cast<std::uint32_t>(ranks) || header_->stage_bytes != stage_bytes_) {
    throw CommError(fmt::format(
        "the control memory found is not that of a group of {} ranks: all ranks must run the same "
        "version of dtrain with the same number of processes",
        ranks));
  }
}

std::span<std::byte> ControlBlock::stage(int rank, std::uint64_t parity) const {
  return all_stages(parity).subspan(static_cast<std::size_t>(rank) * stage_bytes_, stage_bytes_);
}

std::span<std::byte> ControlBlock::all_stages(std::uint64_t parity) const {
  const std::size_t bytes = static_cast<std::size_t>(ranks_) * stage_bytes_;
  return {stages_ + (parity & 1) * bytes, bytes};
}

void ControlBlock::abort(const std::string& reason, int blamed) const {
  std::uint32_t none = 0;
  if (header_->abort_state.compare_exchange_strong(none, 1)) {
    const std::size_t length = std::min(reason.size(), sizeof(header_->reason) - 1);
    std::memcpy(header_->reason, reason.data(), length);
    header_->reason[length] = '\0';
    header_->blamed.store(blamed);
    header_->abort_state.store(2);
  }
  header_->event.fetch_add(1);
  futex_wake_all(header_->event);
}

void ControlBlock::throw_aborted() const {
  // Whoever aborts may be killed while it writes the reason: do not wait for it for long.
  const Deadline patience(0.5);
  while (header_->abort_state.load(std::memory_order_acquire) != 2) {
    if (patience.passed()) throw CommError("the group was aborted by a rank that then died");
    std::this_thread::yield();
  }
  throw CommError(header_->reason, header_->blamed.load());
}

}  // namespace dtrain
