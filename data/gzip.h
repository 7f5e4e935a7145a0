// Unpacks a gzip file piece by piece, so that a caller bounds what it takes in: a small file may
// unpack to more than a machine's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dtrain/data/input_file.h"

namespace dtrain {

// Whether the file begins like gzip, whatever its name.
bool is_gzip(const InputFile& file);

// Unpacked bytes that a gzip file of that size can hold at most (deflate's best ratio is 1032:1).
std::uint64_t largest_unpacked(std::uint64_t gzip_bytes);

class GzipReader {
 public:
  // `file` must outlive the reader.
  explicit GzipReader(const InputFile& file);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Unpacks the next bytes.size() bytes, fewer only at the end; returns how many. Throws DataError
  // where the data is cut off or corrupt.
  std::size_t read(std::span<std::byte> bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtrain
