#include "dtrain/launcher/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Ranks of a launcher that was killed hold the lock a moment longer than it lived; who starts the
// run again at once should not be turned away.
constexpr double patience = 2;  // seconds

// 0, or the errno value.
int lock(int fd) {
  const Deadline deadline(patience);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error != EWOULDBLOCK || deadline.passed()) return error;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) {
  fd_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int error = fd_ ? lock(fd_.get()) : errno;
  if (fd_ && error == EBADF) {
    // NFS locks only what can be written, and a folder is never open for writing.
    fd_.reset(::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    error = fd_ ? lock(fd_.get()) : errno;
  }
  if (error == EWOULDBLOCK) {
    throw ConfigError(fmt::format(
        "output: {} is in use by another run; wait for it, or choose another output folder",
        folder.string()));
  }
  if (error != 0) {
    throw ConfigError(
        fmt::format("output: {} cannot be locked: {}", folder.string(), errno_text(error)));
  }
}

}  // namespace dtrain
