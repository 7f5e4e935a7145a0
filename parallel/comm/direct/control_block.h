// The memory in which the ranks of a group meet: counters, what each rank is doing, the reason of
// an abort, and a small staging area for each rank. The same layout whether the ranks are threads
// or processes; nothing in it is a pointer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dtrain {

enum class CollectiveKind : std::uint32_t {
  join,
  allocate,
  tree_sum,
  all_reduce,
  all_gather,
  broadcast
};

// What a rank says it is doing when it comes to a meeting. All ranks must say the same.
struct Collective {
  CollectiveKind kind = CollectiveKind::join;
  std::int32_t root = 0;
  std::uint64_t sequence = 0;  // number of the collective, from 1
  std::uint64_t phase = 0;     // number of the meeting within the collective
  std::uint64_t count = 0;     // elements: floats for sums, bytes otherwise
  std::uint64_t first = 0;     // first element, or byte offset for all_reduce
  std::uint64_t memory = 0;    // number of the memory
  std::uint64_t plan = 0;      // hash of the TreeSum
  friend bool operator==(const Collective&, const Collective&) = default;
};

// "all_reduce".
const char* name_of(CollectiveKind kind);
// "all_reduce f32[4]"; with `detail` also where and in which plan.
std::string to_string(const Collective& collective, bool detail = false);
// Bytes that a rank gives or receives.
std::uint64_t payload_bytes(const Collective& collective);

// A view of the control memory; does not own it.
class ControlBlock {
 public:
  struct alignas(64) Header {
    std::uint64_t magic = 0;
    std::uint32_t ranks = 0;
    std::uint64_t stage_bytes = 0;
    // Note [Meeting]
    alignas(64) std::atomic<std::uint64_t> arrived = 0;    // arrivals at all meetings so far
    alignas(64) std::atomic<std::uint64_t> completed = 0;  // meetings to which all came
    alignas(64) std::atomic<std::uint32_t> event = 0;      // changes with each completion or abort
    std::atomic<std::uint32_t> sleepers = 0;               // threads that may sleep on `event`
    alignas(64) std::atomic<std::uint32_t> abort_state = 0;  // 0, 1: being written, 2: written
    std::atomic<std::int32_t> blamed = -1;
    char reason[1024] = {};
  };
  struct alignas(64) RankSlot {
    std::atomic<std::uint64_t> entered = 0;  // meetings that this rank has come to
    std::atomic<std::int32_t> pid = 0;
    std::uint64_t processors[16] = {};  // bits: those that this rank may use, as far as they fit
    double quota = 0;                   // processors that its control group grants; 0: no limit
    // Two of each, used in turn: a rank that is ahead by one meeting writes the other one.
    alignas(64) Collective collective[2];
  };

  static std::size_t bytes_needed(int ranks);

  // Lays out zeroed memory; done by one rank before the others see it.
  static void create(std::span<std::byte> memory, int ranks);
  // Throws CommError if the memory is not the control block of a group of that size.
  ControlBlock(std::span<std::byte> memory, int ranks);

  int ranks() const { return ranks_; }
  Header& header() const { return *header_; }
  RankSlot& slot(int rank) const { return slots_[rank]; }
  std::size_t stage_bytes() const { return stage_bytes_; }
  // Staging areas of one parity; those of all ranks lie side by side.
  std::span<std::byte> stage(int rank, std::uint64_t parity) const;
  std::span<std::byte> all_stages(std::uint64_t parity) const;

  // The first abort counts; later ones are ignored. Wakes everyone.
  void abort(const std::string& reason, int blamed) const;
  bool aborted() const { return header_->abort_state.load(std::memory_order_acquire) != 0; }
  // Throws CommError with the reason.
  [[noreturn]] void throw_aborted() const;

 private:
  int ranks_;
  Header* header_;
  RankSlot* slots_;
  std::byte* stages_;
  std::size_t stage_bytes_;
};

}  // namespace dtrain
