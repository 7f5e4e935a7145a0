// Files that are hashed while they are written or read, so that their bytes pass memory once.
//
//   DigestFileWriter file("step-00000100.tmp/state.pb", bytes.size());
//   file.write(bytes);
//   FileDigest digest = file.finish();   // flushed and synced
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/base/files.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {

// Size in bytes and XXH3-128 of a file's content.
struct FileDigest {
  std::uint64_t size = 0;
  std::string digest;  // 32 lower-case hex digits
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// What to do about an error of writing, "; free space ...", or "" where there is no advice.
std::string_view write_remedy(int error_number);
// Text of the error and its remedy.
std::string write_trouble(int error_number);

class DigestFileWriter {
 public:
  // Creates or empties the file. `expected_size` stands in messages alone. Throws CheckpointError.
  DigestFileWriter(const std::filesystem::path& path, std::uint64_t expected_size);

  // Throws CheckpointError with path, cause, and how much of how much was written.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Flushes, syncs and closes. Throws CheckpointError.
  FileDigest finish();

 private:
  void flush();
  void write_piece(std::span<const std::byte> piece);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;
  std::uint64_t expected_size_;
  std::uint64_t size_ = 0;         // bytes accepted by the file
  std::vector<std::byte> buffer_;  // small pieces wait here, so that many of them are one write
  UniqueFd fd_;
  Hasher hasher_;
};

// Digest of a regular file. Throws CheckpointError; never blocks on a FIFO.
FileDigest digest_file(const std::filesystem::path& path);

// Opens a regular file to read and sets `size`. Throws CheckpointError that says what else it is;
// symbolic links are followed, FIFOs and devices are refused without waiting.
UniqueFd open_regular_file(const std::filesystem::path& path, std::uint64_t* size);

// Reads exactly out.size() bytes from `offset`. Throws CheckpointError, also where the file ends.
void read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out,
                  const std::filesystem::path& path);

}  // namespace dtrain
