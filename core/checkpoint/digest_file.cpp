#include "dtrain/core/checkpoint/digest_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

// Pieces are hashed and written while they are in the cache.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a folder, not a file";
  if (S_ISFIFO(mode)) return "is a FIFO, not a file";
  if (S_ISSOCK(mode)) return "is a socket, not a file";
  return "is a device, not a file";
}

}  // namespace

std::string_view write_remedy(int error_number) {
  switch (error_number) {
    case ENOENT:
      return "; its folder is missing: leave it alone while the run goes";
    case ENOSPC:
      return "; free space or inodes there, or lower checkpoint.keep_last";
    case EDQUOT:
      return "; free some of your quota, or lower checkpoint.keep_last";
    case EFBIG:
      return "; raise the limit on the size of files (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; make the folder writable, or choose another output";
    default:
      return "";
  }
}

std::string write_trouble(int error_number) {
  return errno_text(error_number) + std::string(write_remedy(error_number));
}

DigestFileWriter::DigestFileWriter(const fs::path& path, std::uint64_t expected_size)
    : path_(path), expected_size_(expected_size) {
  fd_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd_) throw CheckpointError(path.string(), "cannot create: " + write_trouble(errno));
  buffer_.reserve(std::min<std::uint64_t>(expected_size, piece_bytes));
}

void DigestFileWriter::fail(int error_number) const {
  throw CheckpointError(path_.string(), fmt::format("cannot write: {}, after {} of {} bytes{}",
                                                    errno_text(error_number), size_, expected_size_,
                                                    write_remedy(error_number)));
}

void DigestFileWriter::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() < piece_bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return;
  }
  flush();
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), piece_bytes);
    write_piece(bytes.first(size));
    bytes = bytes.subspan(size);
  }
}

void DigestFileWriter::flush() {
  write_piece(buffer_);
  buffer_.clear();
}

void DigestFileWriter::write_piece(std::span<const std::byte> piece) {
  hasher_.add(piece);
  while (!piece.empty()) {
    const ssize_t n = ::write(fd_.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    size_ += static_cast<std::uint64_t>(n);
    piece = piece.subspan(static_cast<std::size_t>(n));
  }
}

FileDigest DigestFileWriter::finish() {
  flush();
  if (::fsync(fd_.get()) != 0) fail(errno);
  // Some file systems (NFS, quotas) report a failed write only here.
  if (::close(fd_.release()) != 0) fail(errno);
  return {size_, hasher_.hex()};
}

UniqueFd open_regular_file(const fs::path& path, std::uint64_t* size) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const int error_number = errno;
    // A socket cannot be opened at all (ENXIO); say what it is.
    struct stat status;
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      throw CheckpointError(path.string(), std::string(kind_of(status.st_mode)));
    }
    throw CheckpointError(path.string(), "cannot open: " + errno_text(error_number));
  }
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) {
    throw CheckpointError(path.string(), "cannot read: " + errno_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw CheckpointError(path.string(), std::string(kind_of(status.st_mode)));
  }
  *size = static_cast<std::uint64_t>(status.st_size);
  return fd;
}

void read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out, const fs::path& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), std::min(out.size(), std::size_t{1} << 30),
                              static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw CheckpointError(path.string(), "cannot read: " + errno_text(errno));
    if (n == 0) {
      throw CheckpointError(path.string(),
                            fmt::format("file became shorter while it was read: it ends at byte "
                                        "{}, {} more were expected",
                                        offset, out.size()));
    }
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

FileDigest digest_file(const fs::path& path) {
  std::uint64_t size = 0;
  const UniqueFd fd = open_regular_file(path, &size);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(size, piece_bytes));
  Hasher hasher;
  for (std::uint64_t done = 0; done < size;) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(size - done, buffer.size()));
    read_exactly(fd.get(), done, piece, path);
    hasher.add(piece);
    done += piece.size();
  }
  return {size, hasher.hex()};
}

}  // namespace dtrain
