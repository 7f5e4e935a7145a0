#include "dtrain/parallel/comm/local/local_group.h"

#include <map>
#include <mutex>
#include <utility>

#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/direct/direct_communicator.h"

namespace dtrain {

namespace {

// What the ranks have offered each other and not all have opened yet.
struct Offers {
  std::mutex mutex;
  std::map<std::pair<std::uint64_t, int>, Segment> segments;  // by number and rank
};

class LocalSegments final : public SegmentSource {
 public:
  LocalSegments(int rank, std::shared_ptr<Offers> offers)
      : rank_(rank), offers_(std::move(offers)) {}

  Segment create(std::uint64_t id, std::size_t bytes) override {
    Segment segment = make_anonymous_segment(bytes);
    std::lock_guard lock(offers_->mutex);
    offers_->segments[{id, rank_}] = segment;
    return segment;
  }
  Segment open(std::uint64_t id, int rank, std::size_t) override {
    std::lock_guard lock(offers_->mutex);
    const auto found = offers_->segments.find({id, rank});
    if (found == offers_->segments.end()) {
      throw CommError(fmt::format("rank {} does not offer memory {}", rank, id), rank);
    }
    return found->second;
  }
  void retire(std::uint64_t id) override {
    std::lock_guard lock(offers_->mutex);
    offers_->segments.erase({id, rank_});
  }
  bool died(int) override { return false; }
  std::string transport() const override { return "local"; }

 private:
  int rank_;
  std::shared_ptr<Offers> offers_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int ranks, CommOptions options) {
  DTRAIN_CHECK(ranks >= 1, "a group of {} ranks", ranks);
  const Segment control = make_anonymous_segment(ControlBlock::bytes_needed(ranks));
  ControlBlock::create(control.bytes, ranks);
  const bool own_processors = cpu_count().usable >= ranks;
  const auto offers = std::make_shared<Offers>();
  std::vector<std::unique_ptr<Communicator>> group;
  for (int r = 0; r < ranks; ++r) {
    auto comm = std::make_unique<DirectCommunicator>(
        r, ranks, control, std::make_unique<LocalSegments>(r, offers), options);
    comm->set_own_processors(own_processors);
    group.push_back(std::move(comm));
  }
  return group;
}

}  // namespace dtrain
