#include "dtrain/parallel/train/sync_meeting.h"

#include <algorithm>

namespace dtrain {

class SyncMeeting::Lane final : public SyncGroup {
 public:
  Lane(SyncMeeting& meeting, int index) : meeting_(meeting), index_(index) {}
  int size() const override { return static_cast<int>(meeting_.virtual_ranks_); }
  std::span<const double> exchange(std::span<const double> values) override {
    return meeting_.exchange(index_, values);
  }

 private:
  SyncMeeting& meeting_;
  const int index_;
};

SyncMeeting::SyncMeeting(Communicator& comm, std::int64_t virtual_ranks)
    : comm_(comm),
      virtual_ranks_(virtual_ranks),
      range_(virtual_range(virtual_ranks, comm.rank(), comm.size())) {
  for (int rank = 0; rank < comm.size(); ++rank) {
    widest_ = std::max(widest_, virtual_range(virtual_ranks, rank, comm.size()).size());
  }
  for (int lane = 0; lane < range_.size(); ++lane) {
    lanes_.push_back(std::make_unique<Lane>(*this, lane));
  }
}

SyncMeeting::~SyncMeeting() = default;

SyncGroup& SyncMeeting::lane(int lane) {
  return *lanes_.at(lane);
}

void SyncMeeting::end(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    reason_ = reason;
  }
  changed_.notify_all();
  comm_.abort(fmt::format("rank {} failed: {}", comm_.rank(), reason));
}

std::span<const double> SyncMeeting::exchange(int lane, std::span<const double> values) {
  std::unique_lock lock(mutex_);
  if (ended_) throw MeetingEnded(reason_);
  if (arrived_ == 0) {
    count_ = values.size();
    sent_.resize(widest_ * count_);
  }
  DTRAIN_CHECK(values.size() == count_, "lanes meet with {} and {} numbers", values.size(), count_);
  std::ranges::copy(values, sent_.begin() + static_cast<std::ptrdiff_t>(lane * count_));
  const std::uint64_t round = round_;
  if (++arrived_ < range_.size()) {
    changed_.wait(lock, [&] { return ended_ || round_ != round; });
    if (round_ == round) throw MeetingEnded(reason_);
    return all_;
  }
  // All others wait; whoever ends the meeting meanwhile must not wait for the lock.
  lock.unlock();
  try {
    gather(count_);
  } catch (const std::exception& error) {
    end(error.what());
    throw MeetingEnded(error.what());
  }
  lock.lock();
  arrived_ = 0;
  ++round_;
  lock.unlock();
  changed_.notify_all();
  return all_;
}

void SyncMeeting::gather(std::size_t count) {
  const std::size_t block = widest_ * count;
  gathered_.resize(comm_.size() * block);
  InlineStream stream;
  comm_
      .all_gather(stream, std::as_bytes(std::span(sent_)),
                  std::as_writable_bytes(std::span(gathered_)))
      .wait();
  all_.resize(virtual_ranks_ * count);
  auto to = all_.begin();
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const std::int64_t mine = virtual_range(virtual_ranks_, rank, comm_.size()).size();
    const auto from = gathered_.begin() + static_cast<std::ptrdiff_t>(rank * block);
    to = std::copy_n(from, mine * count, to);
  }
}

}  // namespace dtrain
