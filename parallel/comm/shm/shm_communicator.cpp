#include "dtrain/parallel/comm/shm/shm_communicator.h"

#include <bit>
#include <iterator>
#include <optional>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/direct/direct_communicator.h"
#include "dtrain/parallel/comm/shm/memory_file.h"
#include "dtrain/parallel/comm/shm/process_watch.h"

namespace dtrain {

namespace {

class ShmSegments final : public SegmentSource {
 public:
  ShmSegments(DescriptorStore& store, std::string prefix, int rank, double timeout)
      : store_(store), prefix_(std::move(prefix)), rank_(rank), timeout_(timeout) {}

  Segment create(std::uint64_t id, std::size_t bytes) override {
    const UniqueFd fd = create_memory_file("dtrain-gradients", bytes);
    Segment segment = map_memory_file(fd, bytes);
    store_.share(key(id, rank_), fd.get());
    return segment;
  }
  Segment open(std::uint64_t id, int rank, std::size_t bytes) override {
    return map_memory_file(store_.receive(key(id, rank), Deadline(timeout_)), bytes);
  }
  // The store must not hold the memory longer than the ranks do.
  void retire(std::uint64_t id) override { store_.remove(key(id, rank_)); }
  bool died(int rank) override { return watch_ && watch_->ended(rank); }
  std::string transport() const override { return "shm"; }

  void watch(const std::vector<int>& pids) { watch_.emplace(pids); }

 private:
  std::string key(std::uint64_t id, int rank) const {
    return fmt::format("{}/memory/{}/{}", prefix_, id, rank);
  }

  DescriptorStore& store_;
  std::string prefix_;
  int rank_;
  double timeout_;
  std::optional<ProcessWatch> watch_;
};

Segment share_control(DescriptorStore& store, const std::string& key, int size) {
  const std::size_t bytes = ControlBlock::bytes_needed(size);
  const UniqueFd fd = create_memory_file("dtrain-control", bytes);
  Segment control = map_memory_file(fd, bytes);
  ControlBlock::create(control.bytes, size);
  store.share(key, fd.get());
  return control;
}

Segment find_control(DescriptorStore& store, const std::string& key, int size,
                     const CommOptions& options) {
  const Deadline deadline(options.connect_timeout);
  if (!store.wait(key, deadline)) {
    throw CommError(fmt::format("rank 0 has not opened the group '{}' for {:.1f} s", options.name,
                                options.connect_timeout),
                    0);
  }
  return map_memory_file(store.receive(key, deadline), ControlBlock::bytes_needed(size));
}

// Which processors this rank may use. Ranks are often bound to some each: only all together say
// whether there are enough.
void publish_processors(ControlBlock::RankSlot& slot) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ::sched_getaffinity(0, sizeof mask, &mask);  // fails beyond 1024 processors: then it is empty
  for (std::size_t i = 0; i < std::size(slot.processors) * 64; ++i) {
    if (CPU_ISSET(i, &mask)) slot.processors[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  slot.quota = cpu_count().quota;
}

bool enough_processors(const ControlBlock& control) {
  const int ranks = control.ranks();
  int processors = 0;
  for (std::size_t word = 0; word < std::size(control.slot(0).processors); ++word) {
    std::uint64_t any = 0;
    for (int r = 0; r < ranks; ++r) any |= control.slot(r).processors[word];
    processors += std::popcount(any);
  }
  for (int r = 0; r < ranks; ++r) {
    const double quota = control.slot(r).quota;
    if (quota > 0 && quota < ranks) return false;
  }
  return processors >= ranks;
}

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(DescriptorStore& store, int rank, int size,
                                                    const CommOptions& options) {
  DTRAIN_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  const std::int64_t generation =
      store.add(fmt::format("shm/{}/groups-of-rank/{}", options.name, rank), 1);
  const std::string prefix = fmt::format("shm/{}/{}", options.name, generation);
  const std::string control_key = prefix + "/control";
  const Segment segment = rank == 0 ? share_control(store, control_key, size)
                                    : find_control(store, control_key, size, options);
  const ControlBlock control(segment.bytes, size);
  control.slot(rank).pid.store(::getpid());
  publish_processors(control.slot(rank));

  auto source = std::make_unique<ShmSegments>(store, prefix, rank, options.connect_timeout);
  ShmSegments& segments = *source;
  auto comm = std::make_unique<DirectCommunicator>(rank, size, segment, std::move(source), options);
  comm->join(options.connect_timeout);
  // Now all are known to live, and stay until all have opened their watches.
  std::vector<int> pids;
  for (int r = 0; r < size; ++r) pids.push_back(control.slot(r).pid.load());
  segments.watch(pids);
  comm->set_own_processors(enough_processors(control));
  comm->join(options.connect_timeout);
  if (rank == 0) store.remove(control_key);
  return comm;
}

}  // namespace dtrain
