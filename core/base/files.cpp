#include "dtrain/core/base/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <stdlib.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

[[noreturn]] void throw_errno(const fs::path& path, const char* what) {
  throw std::system_error(errno, std::generic_category(), path.string() + ": " + what);
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) reset(other.release());
  return *this;
}

int UniqueFd::release() {
  return std::exchange(fd_, -1);
}

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

std::string read_file(const fs::path& path, std::uint64_t limit) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw_errno(path, "cannot open");
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) throw_errno(path, "cannot read");
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    throw_errno(path, "cannot read");
  }
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    throw_errno(path, "not a regular file");
  }
  if (static_cast<std::uint64_t>(status.st_size) > limit) {
    errno = EFBIG;
    throw_errno(path, "cannot read");
  }
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "cannot read");
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  content.resize(done);
  return content;
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = path.string() + ".tmp";
  try {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) throw_errno(temporary, "cannot create");
    write_all(fd.get(), std::as_bytes(std::span(content)), temporary);
    if (::fsync(fd.get()) != 0) throw_errno(temporary, "cannot write");
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_errno(path, "cannot rename to");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  fsync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void fsync_directory(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_errno(path, "cannot open folder");
  if (::fsync(fd.get()) != 0) throw_errno(path, "cannot sync folder");
}

namespace {

// $TMPDIR, or /tmp where that is not set or empty.
fs::path folder_for_temporaries() {
  const char* const variable = std::getenv("TMPDIR");
  if (variable == nullptr || *variable == '\0') return "/tmp";
  std::error_code ignored;
  if (fs::path(variable).is_absolute() && fs::is_directory(variable, ignored)) return variable;
  throw ConfigError(fmt::format(
      "TMPDIR={}: is not the absolute path of a folder; set it to one, or unset it to use /tmp",
      variable));
}

}  // namespace

TemporaryDirectory::TemporaryDirectory(std::string_view stem) {
  std::string pattern = (folder_for_temporaries() / (std::string(stem) + "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) throw_errno(pattern, "cannot create folder");
  path_ = pattern;
}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  // An empty folder goes even where no descriptor is left to list it.
  if (::rmdir(path_.c_str()) == 0) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace dtrain
