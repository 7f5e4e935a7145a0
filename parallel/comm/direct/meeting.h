// The one way in which ranks wait for each other.
//
// Note [Meeting]
//
// Every collective is a sequence of meetings, numbered alike on all ranks. A rank comes to a
// meeting by writing what it is doing (a Collective) into its slot, and perhaps data into its
// staging area, and then counting itself in. Whoever is last completes the meeting. When it is
// complete each rank compares what all are doing: any difference is an error on all ranks before
// a byte of the result is written.
//
// Slots and staging areas exist twice and are used in turn. A rank that leaves meeting m may write
// for meeting m + 1 at once, beside readers that are still in m; it cannot reach m + 2, and so the
// first copy, before all have left m. That is why a small collective needs only one meeting.
//
// Waiting spins for a moment, if every rank can have a core, and then sleeps in slices in which it
// sees aborts, deadlines and dead peers. `event` is what sleepers sleep on: it changes with each
// completion and abort, and is read before the condition is checked, so no wake-up is lost.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrain/parallel/comm/direct/control_block.h"

namespace dtrain {

class Meeting {
 public:
  // `died(rank)`: whether a peer's process has ended; asked now and then while waiting.
  Meeting(ControlBlock control, int rank, std::function<bool(int)> died);

  // Comes to the next meeting and waits for all. Throws CommError, on all ranks, if one does
  // something else, does not come within `timeout` seconds or died, or if the group was aborted.
  void meet(const Collective& collective, double timeout);

  // Where data for the next meeting goes; what rank r brought to the last one.
  std::span<std::byte> outbox() const { return control_.stage(rank_, next_); }
  std::span<const std::byte> inbox(int rank) const { return control_.stage(rank, next_ - 1); }
  // The staging areas of all ranks as one, where only one rank brings data.
  std::span<std::byte> wide_outbox() const { return control_.all_stages(next_); }
  std::span<const std::byte> wide_inbox() const { return control_.all_stages(next_ - 1); }

  // Whether every rank can have a processor of its own: then waiting spins before it sleeps.
  void set_own_processors(bool own);
  bool own_processors() const { return own_processors_; }

  const ControlBlock& control() const { return control_; }

 private:
  bool completed(std::uint64_t number) const;
  bool spin(std::uint64_t number) const;
  void sleep(std::uint64_t number, const Collective& collective, double timeout) const;
  std::vector<int> missing(std::uint64_t number) const;
  [[noreturn]] void fail_late(const std::vector<int>& late, const Collective& collective,
                              const std::string& happened) const;
  void compare(std::uint64_t number) const;

  ControlBlock control_;
  int rank_;
  std::function<bool(int)> died_;
  std::uint64_t next_ = 0;  // number of the next meeting
  bool own_processors_ = false;
};

}  // namespace dtrain
