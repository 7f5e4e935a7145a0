// A regular file opened for reading. Pipes, devices and folders are refused, so that opening and
// reading never wait for another program, and every error names the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include "dtrain/core/base/files.h"

namespace dtrain {

class InputFile {
 public:
  // Throws DataError: no such file, no permission, not a regular file, limit of open files.
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes, when it was opened

  // Reads up to bytes.size() bytes at `offset`, fewer only at the end of the file; returns how
  // many. Thread-safe. Throws DataError.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

  // Throws DataError that names `record` if the file's size or time of modification is no longer
  // what it was when it was opened. Reading is not atomic: ask after it.
  void check_unchanged(std::int64_t record) const;

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
  timespec modified_{};
};

}  // namespace dtrain
