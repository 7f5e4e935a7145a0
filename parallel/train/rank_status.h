// One page of memory in which every rank shows the launcher where it is. It outlives a rank that
// is killed, so the failure report can say at which step that happened.
//
//   StatusPage page = StatusPage::create(ranks);   // in the launcher; page.fd() is inherited
//   StatusPage page = StatusPage::open(fd, ranks); // in a rank
//   page.rank(3).step.store(17);
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "dtrain/core/base/files.h"

namespace dtrain {

enum class RankPhase : std::int32_t { start, data, train, evaluate, save, end };
std::string_view to_string(RankPhase phase);

struct alignas(64) RankStatus {
  std::atomic<std::int64_t> step{0};  // the step under way, counted from 1; 0 before the first
  std::atomic<RankPhase> phase{RankPhase::start};
};

class StatusPage {
 public:
  static StatusPage create(int ranks);
  static StatusPage open(int fd, int ranks);  // duplicates the descriptor
  StatusPage(StatusPage&& other) noexcept;
  StatusPage& operator=(StatusPage&&) = delete;
  ~StatusPage();

  int fd() const { return fd_.get(); }
  RankStatus& rank(int rank) const;

 private:
  StatusPage(UniqueFd fd, void* memory, int ranks);
  UniqueFd fd_;
  void* memory_;
  int ranks_;
};

}  // namespace dtrain
