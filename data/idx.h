// Reads IDX, the format of MNIST and its relatives: a magic number, the sizes, then unsigned bytes.
// Plain or gzip, told apart by content.
//
//   IdxFile images("t10k-images-idx3-ubyte.gz", IdxKind::images);
//   std::vector<std::uint8_t> pixels(images.item_bytes());
//   images.read(17, pixels);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtrain/data/input_file.h"

namespace dtrain {

class GzipReader;

// The magic number of each kind.
enum class IdxKind : std::uint32_t { labels = 2049, images = 2051 };

class IdxFile {
 public:
  // Throws DataError: another format (named), another kind, a header or data that is incomplete, or
  // not of the size that the header claims.
  IdxFile(const std::string& path, IdxKind kind);

  const std::string& path() const { return file_.path(); }
  std::int64_t count() const { return count_; }
  // Sizes of an item: {height, width}, or none for labels.
  std::span<const std::int64_t> item_shape() const { return item_shape_; }
  std::size_t item_bytes() const { return item_bytes_; }

  // Item `index` into `bytes` (item_bytes()). Thread-safe. Throws DataError.
  void read(std::int64_t index, std::span<std::uint8_t> bytes) const;

  // All items, one after the other (count() * item_bytes()).
  void read_all(std::span<std::uint8_t> bytes) const;

  // Digest of sizes and the first MiB of the items; the same for plain and gzip.
  std::string identity() const;

 private:
  // Bytes at `offset` of the items. `index`: of the item, for the error.
  void read_bytes(std::uint64_t offset, std::span<std::uint8_t> bytes, std::int64_t index) const;
  void parse_header(std::span<const std::byte> header, IdxKind kind);
  void unpack_items(GzipReader& reader);

  InputFile file_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> item_shape_;
  std::size_t item_bytes_ = 1;
  std::uint64_t header_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;  // header and items, unpacked, as the header claims
  // Items of a gzip file. A plain one stays on disk, where all processes share its cached pages.
  std::vector<std::uint8_t> unpacked_;
  bool packed_ = false;
};

}  // namespace dtrain
