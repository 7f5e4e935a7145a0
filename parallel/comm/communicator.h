// A Communicator connects the R ranks of a group: threads (local), processes of a node (shared
// memory), later MPI, Gloo and NCCL. A group of one is a no-op, never a special case for the
// caller.
//
// Collectives are called by all ranks in the same order. Each is put on a stream and returns a
// Work: on an InlineStream it has run when the call returns; on a QueueStream it runs beside the
// caller. One communicator's collectives never run on two streams at once: whoever changes the
// stream waits for the last Work first. The communicator, the memory and the spans given to a
// collective must outlive its Work.
//
//   auto memory = comm->allocate(bytes);                     // memory that peers can read
//   TreeSum sum = plan_tree_sum(tree, ranks, lanes);
//   auto work = comm->tree_sum(stream, *memory, sum, 0, n);  // gradients, in the order of the tree
//   work.wait();                                             // throws CommError
//
// A mismatch of operation, size or type between ranks is a CommError on all ranks, never a wrong
// sum. A rank that does not come within the timeout is named in the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/device/stream.h"
#include "dtrain/parallel/reduce/sum_tree.h"

namespace dtrain {

// A collective under way.
class Work {
 public:
  Work() = default;  // done
  Work(Event event, std::shared_ptr<std::exception_ptr> error)
      : event_(std::move(event)), error_(std::move(error)) {}
  bool done() const { return event_.done(); }
  // Blocks until done; throws the collective's error.
  void wait() const;
  // The error of a collective that is done, or null.
  std::exception_ptr error() const { return error_ ? *error_ : nullptr; }

 private:
  Event event_;
  std::shared_ptr<std::exception_ptr> error_;
};

// Memory of one rank that its peers can reach, directly where the transport allows it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // This rank's own bytes; zero at first; 64-byte aligned.
  virtual std::span<std::byte> local() const = 0;
};

// Where one partial of the sum lies: the values of `node` start `offset` bytes into the memory of
// the rank that holds it.
struct Partial {
  Node node;
  std::size_t offset = 0;
};

// Who holds which nodes of the tree when a bucket is summed; the same on all ranks. The partials
// of all ranks, in rank order, cover the tree from left to right.
struct TreeSum {
  SumTree tree{1};
  std::vector<std::vector<Partial>> partials;  // [rank]
  std::size_t result = 0;  // byte offset in every rank's memory that receives the sum
};

// What a communicator did so far.
struct CommStats {
  std::uint64_t collectives = 0;
  std::uint64_t bytes = 0;      // payload of all collectives
  std::uint64_t tree_sums = 0;  // gradient reductions, by bucket
  std::string transport;        // and its memory: "shm: 2 x 12.5 MiB + 1.1 MiB control"
};

// Options of a group; the same on all ranks.
struct CommOptions {
  double timeout = 600;         // seconds that a rank may wait for the others in a collective
  double connect_timeout = 60;  // seconds that a rank may wait for the others to come at all
  std::string name = "world";   // tells the groups that meet in one store apart
};

class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collective. Memory for tree_sum and all_reduce; each rank may ask for another size. Reserved
  // up front: it fails here (DeviceError with size, free memory and remedy, on all ranks), never by
  // SIGBUS. Blocks the caller; no collective may be under way.
  virtual std::unique_ptr<SharedMemory> allocate(std::size_t bytes) = 0;

  // Sums `count` floats, starting `first` floats behind each partial's offset, in the order of the
  // tree, into `result` of every rank's memory. Inputs may be overwritten.
  // See Note [Order of sums].
  virtual Work tree_sum(Stream& stream, SharedMemory& memory, const TreeSum& sum, std::size_t first,
                        std::size_t count) = 0;

  // The library's own all-reduce (sum of floats) in place, for `reduction: fast`: `count` floats
  // at byte `offset` of every rank's memory.
  virtual Work all_reduce(Stream& stream, SharedMemory& memory, std::size_t offset,
                          std::size_t count) = 0;

  // `out` holds size() * in.size() bytes, in rank order. All ranks give as many bytes. Barrier
  // with zero bytes.
  virtual Work all_gather(Stream& stream, std::span<const std::byte> in,
                          std::span<std::byte> out) = 0;

  virtual Work broadcast(Stream& stream, std::span<std::byte> bytes, int root) = 0;

  // Ends the waiting of all ranks, in this and every later collective, with `reason`.
  virtual void abort(const std::string& reason) = 0;

  // Seconds that a rank may wait from the next collective on.
  virtual void set_timeout(double seconds) = 0;

  virtual CommStats stats() const = 0;

 private:
  int rank_;
  int size_;
};

// Waits until all ranks have come; throws CommError.
void barrier(Communicator& comm);

}  // namespace dtrain
