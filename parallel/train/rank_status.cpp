#include "dtrain/parallel/train/rank_status.h"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "dtrain/core/base/error.h"

namespace dtrain {

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "shared between processes");
static_assert(std::atomic<RankPhase>::is_always_lock_free, "shared between processes");

namespace {

std::size_t bytes_of(int ranks) {
  return static_cast<std::size_t>(ranks) * sizeof(RankStatus);
}

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string("status page: ") + what);
}

void* map(int fd, int ranks) {
  void* memory =
      ::mmap(nullptr, bytes_of(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) throw_errno("cannot map");
  return memory;
}

}  // namespace

std::string_view to_string(RankPhase phase) {
  switch (phase) {
    case RankPhase::start:
      return "start";
    case RankPhase::data:
      return "data";
    case RankPhase::train:
      return "train";
    case RankPhase::evaluate:
      return "evaluate";
    case RankPhase::save:
      return "save";
    case RankPhase::end:
      return "end";
  }
  return "unknown";
}

StatusPage::StatusPage(UniqueFd fd, void* memory, int ranks)
    : fd_(std::move(fd)), memory_(memory), ranks_(ranks) {}

StatusPage::StatusPage(StatusPage&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, nullptr)),
      ranks_(other.ranks_) {}

StatusPage::~StatusPage() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_of(ranks_));
}

StatusPage StatusPage::create(int ranks) {
  DTRAIN_CHECK(ranks >= 1, "{} ranks", ranks);
  UniqueFd fd(::memfd_create("dtrain-status", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_errno("cannot create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes_of(ranks))) != 0) throw_errno("cannot size");
  // No rank can take the memory away from under the others.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw_errno("cannot seal");
  }
  void* memory = map(fd.get(), ranks);
  for (int r = 0; r < ranks; ++r) new (static_cast<RankStatus*>(memory) + r) RankStatus;
  return StatusPage(std::move(fd), memory, ranks);
}

StatusPage StatusPage::open(int fd, int ranks) {
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) throw_errno("cannot duplicate its descriptor");
  struct stat status;
  if (::fstat(own.get(), &status) != 0) throw_errno("cannot read its size");
  DTRAIN_CHECK(ranks >= 1 && status.st_size == static_cast<off_t>(bytes_of(ranks)),
               "a status page of {} bytes for {} ranks", status.st_size, ranks);
  void* memory = map(own.get(), ranks);
  return StatusPage(std::move(own), memory, ranks);
}

RankStatus& StatusPage::rank(int rank) const {
  DTRAIN_CHECK(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  return static_cast<RankStatus*>(memory_)[rank];
}

}  // namespace dtrain
