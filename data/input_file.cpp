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

}  // namespace dtrain
