#include "dtrain/launcher/folder_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  fd_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int error = fd_ && ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (fd_ && error == EBADF) {
    // NFS locks only what can be written, and a folder is never open for writing.
    fd_.reset(::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    error = fd_ && ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
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
