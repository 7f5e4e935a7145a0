// Where the passes of all virtual ranks meet inside a layer: lanes of this process through memory,
// processes through a communicator of their own, beside which the gradients' buckets go on.
//
// Note [Meeting in a pass]: every virtual rank has a lane (a thread) of its own, whatever the
// number of cores, and every lane runs as many micro-batches as the fullest slot has, empty ones
// too: so all come to each meeting. A lane that fails ends the meetings for all lanes of all
// processes; what it failed of is its error, what the others get is a consequence
// (Ballot::consequence).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dtrain/core/autograd/sync_group.h"
#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/reduce/sum_tree.h"

namespace dtrain {

// A lane's meetings were ended by another lane, here or in another process, or by its end.
class MeetingEnded : public CommError {
 public:
  using CommError::CommError;
};

class SyncMeeting {
 public:
  // comm: used for nothing else. Everything outlives the meeting.
  SyncMeeting(Communicator& comm, std::int64_t virtual_ranks);
  ~SyncMeeting();

  // Of this process' virtual rank range().first + lane; used by one thread at a time.
  SyncGroup& lane(int lane);
  VirtualRange range() const { return range_; }

  // From any thread: whoever waits, and whoever comes later, gets MeetingEnded.
  void end(const std::string& reason);

 private:
  class Lane;
  std::span<const double> exchange(int lane, std::span<const double> values);
  void gather(std::size_t count);

  Communicator& comm_;
  const std::int64_t virtual_ranks_;
  const VirtualRange range_;
  std::int64_t widest_ = 0;  // virtual ranks of the rank that has most
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  std::size_t count_ = 0;         // numbers of a lane in this round
  std::vector<double> sent_;      // [widest_][count_]
  std::vector<double> gathered_;  // [ranks][widest_][count_]
  std::vector<double> all_;       // [virtual_ranks_][count_]
  bool ended_ = false;
  std::string reason_;
};

}  // namespace dtrain
