#include "dtrain/data/input_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "dtrain/core/base/error.h"

namespace dtrain {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd_) throw DataError(path_, -1, "cannot open: " + errno_text(errno));
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) {
    throw DataError(path_, -1, "cannot read: " + errno_text(errno));
  }
  if (S_ISDIR(status.st_mode)) throw DataError(path_, -1, "is a folder, expected a file");
  if (!S_ISREG(status.st_mode)) throw DataError(path_, -1, "is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_ = status.st_mtim;
}

std::size_t InputFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(fd_.get(), bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw DataError(path_, -1, "cannot read: " + errno_text(errno));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void InputFile::check_unchanged(std::int64_t record) const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) {
    throw DataError(path_, record, "cannot read: " + errno_text(errno));
  }
  if (static_cast<std::uint64_t>(status.st_size) < size_) {
    throw DataError(path_, record, "the file became shorter while it was in use");
  }
  if (static_cast<std::uint64_t>(status.st_size) != size_ ||
      status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    throw DataError(path_, record, "the file was changed while it was in use");
  }
}

}  // namespace dtrain
