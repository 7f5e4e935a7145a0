// Sums gradients while backward still runs.
//
// Each lane writes the gradients of its virtual rank into a slot of the reducer's shared memory.
// In the last wave of a step, as soon as every lane has finished all parameters of a bucket, that
// slice of all slots of all ranks is summed on the communication stream, in the order of the tree
// (Note [Order of sums]). Buckets start strictly in plan order, so every rank issues the same
// sequence. The sum lies in slot 0 of every rank. A rank that is alone has no link to keep busy,
// and its cores are the lanes': it adds its slots when they are done, on all cores.
//
//   Reducer reducer(comm, layout, plan, virtual_ranks, lanes, Reduction::reproducible);
//   reducer.begin_step();
//   for (int w = 0; w < reducer.waves(); ++w) {
//     // lane l: backward of virtual rank reducer.wave_range(w).first + l into
//     // reducer.slot(w, l); in the last wave reports reducer.finished(parameter)
//     reducer.end_wave(w, pool);
//   }
//   reducer.wait();                      // throws CommError
//   use(reducer.gradients());
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtrain/core/base/thread_pool.h"
#include "dtrain/core/device/stream.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/reduce/bucket_plan.h"
#include "dtrain/parallel/reduce/slot_schedule.h"
#include "dtrain/parallel/reduce/tree_kernel.h"

namespace dtrain {

// `reproducible` adds in the order of the tree; `fast` adds a lane's virtual ranks in place and
// then uses the library's own all-reduce, so the bits depend on the placement.
enum class Reduction : std::uint8_t { reproducible, fast };

class Reducer {
 public:
  // Collective: allocates the shared memory of all slots. All ranks have the same number of lanes.
  Reducer(Communicator& comm, const ArenaLayout& layout, const BucketPlan& plan,
          std::int64_t virtual_ranks, int lanes, Reduction reduction);
  ~Reducer();

  // Slots that a rank needs, without making a reducer.
  static int slots_needed(std::int64_t virtual_ranks, int rank, int ranks, int lanes,
                          Reduction reduction);

  VirtualRange range() const { return range_; }
  int waves() const { return schedule_.waves(); }
  VirtualRange wave_range(int wave) const { return schedule_.wave_range(wave); }
  bool last_wave(int wave) const { return wave + 1 == waves(); }
  // Under `fast`, later waves add to what the lane's slot holds.
  bool accumulates(int wave) const { return reduction_ == Reduction::fast && wave > 0; }

  // Gradients (with statistic sums) of lane `lane` in `wave`.
  std::span<float> slot(int wave, int lane);
  // The summed gradients, after wait().
  std::span<float> gradients();

  void begin_step();
  // Last wave only: a lane has finished this parameter; from any thread, once per lane and step.
  void finished(int parameter);
  // All lanes of the wave are done.
  void end_wave(int wave, ThreadPool& pool);
  // Until all buckets are summed. Throws the first error.
  void wait();
  // Whether all that this rank put into the sums was finite; after wait(). True for a rank that is
  // alone: the sum itself tells.
  bool finite() const { return finite_; }
  // Seconds that the last wait() took: communication that backward did not hide.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  std::span<float> slot_memory(int slot);
  void launch(std::size_t bucket);
  void check_finite(std::size_t first, std::size_t count);
  // The slots that hold what is left to add when the last wave is done, in order.
  std::vector<int> last_slots() const;
  void add_last_slots(ThreadPool& pool);

  Communicator& comm_;
  const BucketPlan& plan_;
  const Reduction reduction_;
  const VirtualRange range_;
  const std::int64_t elements_;  // of a slot
  SlotSchedule schedule_;
  TreeSum tree_sum_;
  std::optional<TreeKernel> own_sum_;  // of last_slots(), for a rank that is alone
  std::unique_ptr<SharedMemory> memory_;
  std::vector<int> bucket_of_;  // [parameter]
  int last_lanes_ = 0;          // lanes in use in the last wave
  // Parameters times lanes that a bucket still waits for.
  std::vector<std::atomic<std::int64_t>> pending_;
  std::mutex launch_mutex_;
  std::vector<bool> ready_;
  std::size_t next_ = 0;  // bucket to launch next
  std::vector<Work> works_;
  std::atomic<bool> finite_ = true;
  double exposed_seconds_ = 0;
  QueueStream stream_;  // last: its thread uses what stands above
};

}  // namespace dtrain
