#include "dtrain/data/idx.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"
#include "dtrain/data/foreign_format.h"
#include "dtrain/data/gzip.h"

namespace dtrain {

namespace {

constexpr std::size_t longest_header = 16;  // magic number and three sizes
constexpr std::uint8_t unsigned_byte = 0x08;

std::string_view name_of(IdxKind kind) {
  return kind == IdxKind::images ? "images" : "labels";
}

std::size_t dimensions_of(IdxKind kind) {
  return kind == IdxKind::images ? 3 : 1;
}

std::uint32_t big_endian(std::span<const std::byte> bytes) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes.first(4)) value = value << 8 | std::to_integer<unsigned>(byte);
  return value;
}

std::string_view type_name(unsigned type) {
  switch (type) {
    case 0x08:
      return "unsigned byte";
    case 0x09:
      return "signed byte";
    case 0x0B:
      return "16-bit integer";
    case 0x0C:
      return "32-bit integer";
    case 0x0D:
      return "32-bit float";
    case 0x0E:
      return "64-bit float";
    default:
      return {};
  }
}

}  // namespace

IdxFile::IdxFile(const std::string& path, IdxKind kind) : file_(path) {
  std::array<std::byte, longest_header> header;
  packed_ = is_gzip(file_);
  if (!packed_) {
    parse_header(std::span(header).first(file_.read_at(0, header)), kind);
    if (file_.size() != file_bytes_) {
      throw DataError(path, -1,
                      fmt::format("expected {} bytes, file has {}", file_bytes_, file_.size()));
    }
    return;
  }
  GzipReader reader(file_);
  const std::span<std::byte> wanted = std::span(header).first(4 + 4 * dimensions_of(kind));
  parse_header(wanted.first(reader.read(wanted)), kind);
  unpack_items(reader);
}

void IdxFile::parse_header(std::span<const std::byte> header, IdxKind kind) {
  const std::string& path = file_.path();
  if (header.empty()) throw DataError(path, -1, "file is empty");
  if (const std::string_view other = foreign_format(header); !other.empty()) {
    throw DataError(path, -1,
                    fmt::format("is {}{}, not IDX", other, other == "gzip" ? " inside gzip" : ""));
  }
  const std::size_t wanted = 4 + 4 * dimensions_of(kind);
  if (header.size() < 4) {
    throw DataError(
        path, -1,
        fmt::format("header incomplete: expected {} bytes, file has {}", wanted, header.size()));
  }
  const std::uint32_t magic = big_endian(header);
  const auto expected = static_cast<std::uint32_t>(kind);
  if (magic != expected) {
    const unsigned type = magic >> 8;
    const unsigned dimensions = magic & 0xFF;
    std::string what = "is not IDX";
    if (magic == static_cast<std::uint32_t>(IdxKind::labels)) {
      what = "is labels";
    } else if (magic == static_cast<std::uint32_t>(IdxKind::images)) {
      what = "is images";
    } else if (type != unsigned_byte && !type_name(type).empty()) {
      what =
          fmt::format("is IDX type 0x{:02X} ({}), which is not supported", type, type_name(type));
    } else if (type == unsigned_byte) {
      what = fmt::format("is IDX of {} dimensions", dimensions);
    }
    throw DataError(path, -1,
                    fmt::format("magic {} {}, expected {} ({} of unsigned bytes)", magic, what,
                                expected, name_of(kind)));
  }
  if (header.size() < wanted) {
    throw DataError(
        path, -1,
        fmt::format("header incomplete: expected {} bytes, file has {}", wanted, header.size()));
  }
  count_ = big_endian(header.subspan(4));
  unsigned __int128 bytes = static_cast<unsigned __int128>(count_);
  unsigned __int128 item_bytes = 1;
  for (std::size_t d = 1; d < dimensions_of(kind); ++d) {
    const std::uint32_t size = big_endian(header.subspan(4 + 4 * d));
    if (size == 0)
      throw DataError(path, -1, fmt::format("axis {} of the {} is 0", d, name_of(kind)));
    item_shape_.push_back(size);
    item_bytes *= size;
    bytes *= size;
  }
  if (bytes + wanted > static_cast<unsigned __int128>(INT64_MAX)) {
    throw DataError(path, -1, "header claims more bytes than a file can have");
  }
  if (count_ == 0) throw DataError(path, -1, fmt::format("holds 0 {}", name_of(kind)));
  item_bytes_ = static_cast<std::size_t>(item_bytes);
  header_bytes_ = wanted;
  file_bytes_ = static_cast<std::uint64_t>(bytes) + wanted;
}

void IdxFile::unpack_items(GzipReader& reader) {
  const std::uint64_t wanted = file_bytes_ - header_bytes_;
  if (file_bytes_ > largest_unpacked(file_.size())) {
    throw DataError(path(), -1,
                    fmt::format("expected {} bytes, more than {} bytes of gzip can hold",
                                file_bytes_, file_.size()));
  }
  // Grows with what is really there, not with what the header claims.
  constexpr std::uint64_t piece = std::uint64_t{1} << 20;
  std::uint64_t done = 0;
  while (done < wanted) {
    unpacked_.resize(static_cast<std::size_t>(done + std::min(piece, wanted - done)));
    const std::span<std::uint8_t> room = std::span(unpacked_).subspan(done);
    const std::size_t n = reader.read(std::as_writable_bytes(room));
    done += n;
    if (n < room.size()) {
      throw DataError(path(), -1,
                      fmt::format("expected {} bytes, file has {} (unpacked)", file_bytes_,
                                  header_bytes_ + done));
    }
  }
  std::byte extra;
  if (reader.read(std::span(&extra, 1)) != 0) {
    throw DataError(path(), -1,
                    fmt::format("expected {} bytes, file has more (unpacked)", file_bytes_));
  }
  unpacked_.shrink_to_fit();
}

void IdxFile::read(std::int64_t index, std::span<std::uint8_t> bytes) const {
  DTRAIN_CHECK(index >= 0 && index < count_, "item {} of {}", index, count_);
  DTRAIN_CHECK(bytes.size() == item_bytes_, "{} bytes for an item of {}", bytes.size(),
               item_bytes_);
  read_bytes(static_cast<std::uint64_t>(index) * item_bytes_, bytes, index);
}

void IdxFile::read_all(std::span<std::uint8_t> bytes) const {
  DTRAIN_CHECK(bytes.size() == file_bytes_ - header_bytes_, "{} bytes for items of {}",
               bytes.size(), file_bytes_ - header_bytes_);
  read_bytes(0, bytes, -1);
}

void IdxFile::read_bytes(std::uint64_t offset, std::span<std::uint8_t> bytes,
                         std::int64_t index) const {
  if (packed_) {
    std::copy_n(unpacked_.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(),
                bytes.begin());
  } else if (file_.read_at(header_bytes_ + offset, std::as_writable_bytes(bytes)) != bytes.size()) {
    throw DataError(path(), index, "the file became shorter while it was in use");
  }
}

std::string IdxFile::identity() const {
  Hasher hasher;
  hasher.add("idx");
  hasher.add(count_);
  for (const std::int64_t size : item_shape_) hasher.add(size);
  constexpr std::uint64_t head = std::uint64_t{1} << 20;
  std::vector<std::uint8_t> bytes(
      static_cast<std::size_t>(std::min(head, file_bytes_ - header_bytes_)));
  read_bytes(0, bytes, -1);
  hasher.add(std::as_bytes(std::span(bytes)));
  return hasher.hex();
}

}  // namespace dtrain
