// Files and descriptors: owners, whole-file reads, and writes that a crash cannot leave half done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

// Owns one file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Whole content of a regular file. Throws std::system_error whose text holds the path; also where
// the file is longer than `limit` bytes (std::errc::file_too_large) or not a regular file.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit = UINT64_MAX);

// Writes all bytes at the descriptor's position. Throws std::system_error naming `path`.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

// Replaces `path` by `content`: temporary file beside it, fsync, rename, fsync of the folder.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Makes names created, renamed or removed in the folder durable.
void fsync_directory(const std::filesystem::path& path);

// A private folder (mode 0700), removed with its content by the destructor.
class TemporaryDirectory {
 public:
  // Stands in $TMPDIR or /tmp; `stem` begins its name.
  explicit TemporaryDirectory(std::string_view stem = "dtrain");
  ~TemporaryDirectory();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace dtrain
