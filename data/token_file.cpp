#include "dtrain/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"
#include "dtrain/data/foreign_format.h"

namespace dtrain {

namespace {

constexpr std::int64_t header_bytes = 256 * 4;

struct Header {
  std::uint32_t magic;
  std::uint32_t version;
  int width;
};
constexpr std::array<Header, 2> headers = {{{20240520, 1, 2}, {20240801, 7, 4}}};

// Other files of llm.c begin so: evaluations, weights of GPT-2.
constexpr std::array<std::uint32_t, 2> other_magics = {20240522, 20240326};

template <typename T>
T little_endian(const std::byte* bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(value << 8 | std::to_integer<T>(bytes[i]));
  }
  return value;
}

std::int64_t largest_of_width(int width) {
  return (std::int64_t{1} << 8 * width) - 1;
}

// Tokens of the head that are looked at when a file is opened.
constexpr std::int64_t head_tokens = 65536;

}  // namespace

TokenFile::TokenFile(const std::string& path, const TokenFileOptions& options)
    : file_(path), vocabulary_(options.vocabulary) {
  if (file_.size() == 0) throw DataError(path, -1, "file is empty");
  if (options.width == 1) {  // any bytes are text
    size_ = static_cast<std::int64_t>(file_.size());
    return;
  }
  const bool has_header = read_header(options);
  if (!has_header) {
    width_ = options.width != 0                             ? options.width
             : options.vocabulary - 1 > largest_of_width(2) ? 4
                                                            : 2;
    const auto bytes = static_cast<std::int64_t>(file_.size());
    if (bytes % width_ != 0) {
      throw DataError(path, bytes / width_,
                      fmt::format("is cut: the file has {} bytes, which are no whole number of "
                                  "tokens of {} bytes",
                                  bytes, width_));
    }
    size_ = bytes / width_;
  }
  look_at_head(!has_header && options.width == 0);
}

bool TokenFile::read_header(const TokenFileOptions& options) {
  std::array<std::byte, 64> head{};
  const std::size_t there = file_.read_at(0, head);
  const auto number = [&](std::size_t i) { return little_endian<std::uint32_t>(&head[4 * i]); };
  const auto fail = [&](const std::string& what) { throw DataError(path(), -1, what); };
  if (const std::string_view other = foreign_format(std::span(head).first(there)); !other.empty()) {
    fail(fmt::format("is {}, not a file of tokens", other));
  }
  if (options.format == TokenFormat::raw) return false;
  const std::uint32_t magic = number(0);
  const auto* const header = std::ranges::find(headers, magic, &Header::magic);
  if (there < 12 || header == headers.end()) {
    if (options.format == TokenFormat::llmc) {
      if (static_cast<std::int64_t>(file_.size()) < header_bytes) {
        fail(fmt::format("header incomplete: expected {} bytes, file has {}", header_bytes,
                         file_.size()));
      }
      fail(fmt::format("magic {} is not that of llm.c's tokens, expected {} or {}", magic,
                       headers[0].magic, headers[1].magic));
    }
    const std::uint32_t swapped = __builtin_bswap32(magic);
    if (std::ranges::find(headers, swapped, &Header::magic) != headers.end()) {
      fail(fmt::format("magic {} in big-endian order: tokens must be little-endian", swapped));
    }
    if (std::ranges::find(other_magics, magic) != other_magics.end()) {
      fail(fmt::format("magic {} is that of another kind of file of llm.c, expected {} or {}",
                       magic, headers[0].magic, headers[1].magic));
    }
    return false;
  }
  if (number(1) != header->version) {
    fail(fmt::format("version {} in the header, expected {}", number(1), header->version));
  }
  if (options.width != 0 && options.width != header->width) {
    fail(fmt::format("dtype u{} was asked for, but the header says u{}", 8 * options.width,
                     8 * header->width));
  }
  width_ = header->width;
  begin_ = header_bytes;
  size_ = number(2);
  const std::int64_t wanted = header_bytes + size_ * width_;
  const auto bytes = static_cast<std::int64_t>(file_.size());
  if (bytes < header_bytes) {
    fail(fmt::format("header incomplete: expected {} bytes, file has {}", header_bytes, bytes));
  }
  if (bytes < wanted) {
    throw DataError(path(), (bytes - header_bytes) / width_,
                    fmt::format("is cut: the header claims {} tokens, which need {} bytes, but "
                                "the file has {}",
                                size_, wanted, bytes));
  }
  if (bytes > wanted) {
    fail(fmt::format("the header claims {} tokens, which need {} bytes, but the file has {}", size_,
                     wanted, bytes));
  }
  if (size_ == 0) fail("holds no tokens");
  return true;
}

// A file of 32 bits read as one of 16 has its ids in every other token, and between them zeros (or,
// for a vocabulary above 65536, small numbers): training would go on without a word. Checked where
// nobody said what the width is.
void TokenFile::look_at_head(bool width_is_assumed) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(size_, head_tokens)));
  read_raw(0, tokens);
  const auto outside = [&](std::int32_t token) { return token < 0 || token >= vocabulary_; };
  const auto bad = std::ranges::find_if(tokens, outside);
  if (bad != tokens.end()) bad_token_ = bad - tokens.begin();
  constexpr std::size_t enough = 16;
  if (!width_is_assumed || width_ != 2 || tokens.size() < enough) return;
  constexpr std::int32_t largest_upper_half = 31;  // ids below 2^21
  std::int32_t largest_odd = 0;
  std::size_t large_even = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % 2 == 1) largest_odd = std::max(largest_odd, tokens[i]);
    if (i % 2 == 0 && tokens[i] > largest_upper_half) ++large_even;
  }
  if (largest_odd <= largest_upper_half && 4 * large_even > tokens.size()) {
    throw DataError(path(), -1,
                    fmt::format("looks like numbers of 32 bits read as 16: every other token is at "
                                "most {}; set dtype: u32 (or dtype: u16 if it is right)",
                                largest_odd));
  }
}

void TokenFile::read_raw(std::int64_t first, std::span<std::int32_t> tokens) const {
  DTRAIN_CHECK(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= size_,
               "{} tokens at {} of {}", tokens.size(), first, size_);
  // The file's bytes go to the end of the room and are widened from the front: token i is written
  // to bytes 4i to 4i + 3, which no later token's bytes begin before.
  const std::span<std::byte> room = std::as_writable_bytes(tokens);
  const auto width = static_cast<std::size_t>(width_);
  const std::span<std::byte> bytes = room.last(tokens.size() * width);
  const std::size_t read =
      file_.read_at(static_cast<std::uint64_t>(begin_ + first * width_), bytes);
  if (read != bytes.size()) {
    throw DataError(path(), first + static_cast<std::int64_t>(read / width),
                    "the file became shorter while it was in use");
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* const from = bytes.data() + i * width;
    const std::uint32_t token = width == 1   ? std::to_integer<std::uint32_t>(*from)
                                : width == 2 ? little_endian<std::uint16_t>(from)
                                             : little_endian<std::uint32_t>(from);
    tokens[i] = static_cast<std::int32_t>(token);
  }
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  read_raw(first, tokens);
  file_.check_unchanged(first);
  if (vocabulary_ > largest_of_width(width_)) return;
  const auto bad = std::ranges::find_if(
      tokens, [&](std::int32_t token) { return token < 0 || token >= vocabulary_; });
  if (bad == tokens.end()) return;
  throw DataError(path(), first + (bad - tokens.begin()),
                  fmt::format("token {}, but the vocabulary has {} (ids 0 to {}){}",
                              static_cast<std::uint32_t>(*bad), vocabulary_, vocabulary_ - 1,
                              width_ == 4 ? "; is it a file of 16 bits (dtype: u16)?" : ""));
}

void TokenFile::add_identity(Hasher& hasher, std::int64_t bytes) const {
  hasher.add(width_);
  hasher.add(size_);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(size_, bytes / width_)));
  read_raw(0, tokens);
  hasher.add(std::as_bytes(std::span(tokens)));
}

}  // namespace dtrain
