// Collectives between ranks that can reach each other's memory: threads of a process, or processes
// of a node that map the same segments. Both run this code; see SegmentSource for what differs.
//
// Peers add straight from each other's buckets. For a large sum the ranks meet, each rank sums its
// own part of the range from the memory of all ranks and writes the result into the memory of all
// ranks, and they meet again: 1/R of the additions each, and no copy. A small sum goes through the
// staging areas, with one meeting: each rank adds everything itself. What is
// small depends on what a meeting costs.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/comm/direct/meeting.h"
#include "dtrain/parallel/comm/direct/segments.h"
#include "dtrain/parallel/reduce/tree_kernel.h"

namespace dtrain {

class DirectCommunicator final : public Communicator {
 public:
  // `control` holds a created ControlBlock.
  DirectCommunicator(int rank, int size, Segment control, std::unique_ptr<SegmentSource> source,
                     const CommOptions& options);

  // Before the first collective, alike on all ranks: whether each rank can have a processor of its
  // own. Decides how long waiting spins and from which size on a sum takes two meetings.
  void set_own_processors(bool own) { meeting_.set_own_processors(own); }

  // Waits that many seconds for all ranks to come; throws CommError that names who did not.
  void join(double seconds);

  std::unique_ptr<SharedMemory> allocate(std::size_t bytes) override;
  Work tree_sum(Stream& stream, SharedMemory& memory, const TreeSum& sum, std::size_t first,
                std::size_t count) override;
  Work all_reduce(Stream& stream, SharedMemory& memory, std::size_t offset,
                  std::size_t count) override;
  Work all_gather(Stream& stream, std::span<const std::byte> in, std::span<std::byte> out) override;
  Work broadcast(Stream& stream, std::span<std::byte> bytes, int root) override;
  void abort(const std::string& reason) override;
  void set_timeout(double seconds) override;
  CommStats stats() const override;

 private:
  class Memory;
  // A sum made ready: who adds what in which order.
  struct Plan {
    std::int64_t virtual_ranks = 0;
    std::vector<std::vector<Partial>> partials;  // [rank]; as given
    std::uint64_t hash = 0;
    std::size_t most = 0;  // partials of a rank, at most
    TreeKernel kernel;
  };
  // A range of floats to sum: inputs by rank, result at the same place in all memories.
  struct Sum {
    const Memory* memory;
    std::shared_ptr<const Plan> plan;
    std::size_t shift;   // bytes to add to each partial's offset
    std::size_t result;  // byte offset
    std::size_t count;
  };

  template <typename Body>
  Work launch(Stream& stream, std::uint64_t bytes, Body body);
  Memory& own(SharedMemory& memory) const;
  std::shared_ptr<const Plan> prepare(const TreeSum& sum);
  std::shared_ptr<const Plan> rank_order(std::size_t offset);

  void run_sum(Collective collective, const Sum& sum, double timeout);
  void check_bounds(const Sum& sum) const;
  void sum_small(const Collective& collective, const Sum& sum, double timeout);
  void sum_large(Collective collective, const Sum& sum, double timeout);
  void run_all_gather(Collective collective, std::span<const std::byte> in,
                      std::span<std::byte> out, double timeout);
  void run_broadcast(Collective collective, std::span<std::byte> bytes, double timeout);
  // Gives each rank's `bytes` (few) to all; returns those of all.
  std::vector<std::vector<std::byte>> exchange(Collective& collective,
                                               std::span<const std::byte> bytes);

  Segment control_;
  std::unique_ptr<SegmentSource> source_;
  Meeting meeting_;
  std::atomic<double> timeout_;
  std::uint64_t sequence_ = 0;  // of collectives; used by whoever runs them, one at a time

  mutable std::mutex mutex_;  // what follows
  std::shared_ptr<const Plan> last_plan_;
  std::shared_ptr<const Plan> rank_order_;
  std::uint64_t memories_ = 0;
  std::vector<std::size_t> reserved_;  // bytes of each rank
  CommStats stats_;
};

}  // namespace dtrain
