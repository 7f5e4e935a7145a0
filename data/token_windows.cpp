#include "dtrain/data/token_windows.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"
#include "dtrain/core/base/text.h"
#include "dtrain/data/matching_files.h"

namespace dtrain {

namespace {

constexpr std::int64_t byte_values = 256;

// Bytes of all files together that make the content's digest.
constexpr std::int64_t digest_bytes = std::int64_t{1} << 22;

}  // namespace

TokenWindowsOptions text_windows(const config::Text& options) {
  return {.paths = {options.path()},
          .file = {.vocabulary = byte_values, .width = 1},
          .context = options.context(),
          .stride = options.stride(),
          .bytes_per_token = 1};
}

TokenWindowsOptions token_windows(const config::Tokens& options) {
  const int width = options.dtype() == "u16" ? 2 : options.dtype() == "u32" ? 4 : 0;
  const TokenFormat format = options.format() == "raw"    ? TokenFormat::raw
                             : options.format() == "llmc" ? TokenFormat::llmc
                                                          : TokenFormat::any;
  return {.paths = matching_files(options.path()),
          .file = {.vocabulary = options.vocabulary(), .width = width, .format = format},
          .context = options.context(),
          .stride = options.stride(),
          .bytes_per_token = options.bytes_per_token()};
}

TokenWindows::TokenWindows(const TokenWindowsOptions& options)
    : vocabulary_(options.file.vocabulary),
      context_(options.context),
      stride_(options.stride > 0 ? options.stride : options.context) {
  DTRAIN_CHECK(context_ > 0 && vocabulary_ > 0 && !options.paths.empty(),
               "context {}, vocabulary {}, {} files", context_, vocabulary_, options.paths.size());
  for (const std::string& path : options.paths) {
    shards_.push_back({TokenFile(path, options.file), tokens_});
    tokens_ += shards_.back().file.size();
  }
  size_ = windows().samples_before(tokens_ - 1);
  if (size_ == 0) {
    throw DataError(options.paths.front(), -1,
                    fmt::format("{}{}, but a window of context {} needs {}: use a shorter context",
                                options.paths.size() > 1 ? fmt::format("and {} more files have ",
                                                                       options.paths.size() - 1)
                                                         : "has ",
                                counted(tokens_, "token"), context_, context_ + 1));
  }
  spec_.input = {DType::i32, Shape{context_}};
  spec_.target = {DType::i64, Shape{context_}};
  spec_.classes = vocabulary_;
  spec_.bytes_per_target = options.bytes_per_token;
}

const TokenWindows::Shard& TokenWindows::shard_of(std::int64_t token) const {
  DTRAIN_CHECK(token >= 0 && token < tokens_, "token {} of {}", token, tokens_);
  return *std::prev(std::ranges::upper_bound(shards_, token, {}, &Shard::first));
}

void TokenWindows::read(std::int64_t index, std::span<std::byte> input,
                        std::span<std::byte> target) const {
  DTRAIN_CHECK(index >= 0 && index < size_, "window {} of {}", index, size_);
  // The targets' room, of 8 bytes each, holds all tokens of the window, of 4 bytes each.
  const std::int64_t wanted = context_ + 1;
  const std::span<std::int32_t> tokens(reinterpret_cast<std::int32_t*>(target.data()),
                                       static_cast<std::size_t>(wanted));
  for (std::int64_t done = 0; done < wanted;) {
    const std::int64_t token = index * stride_ + done;
    const Shard& shard = shard_of(token);
    const std::int64_t from = token - shard.first;
    const std::int64_t count = std::min(wanted - done, shard.file.size() - from);
    shard.file.read(
        from, tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)));
    done += count;
  }
  std::memcpy(input.data(), tokens.data(), input.size());
  // Widened from the back: target i takes bytes 8i to 8i + 7, and the tokens not yet moved end
  // before byte 4(i + 1).
  for (std::int64_t i = context_ - 1; i >= 0; --i) {
    std::int32_t token;
    std::memcpy(&token, target.data() + (i + 1) * sizeof token, sizeof token);
    const std::int64_t label = token;
    std::memcpy(target.data() + i * sizeof label, &label, sizeof label);
  }
}

std::string TokenWindows::origin(std::int64_t index) const {
  const std::int64_t first = index * stride_;
  const Shard& shard = shard_of(first);
  return fmt::format("{}: {} tokens from token {} on", shard.file.path(), context_ + 1,
                     first - shard.first);
}

void TokenWindows::check(std::int64_t first, std::int64_t last) const {
  for (const Shard& shard : shards_) {
    const std::optional<std::int64_t> bad = shard.file.bad_token();
    if (!bad) continue;
    const std::int64_t token = shard.first + *bad;
    // The first window of the range that reaches the token.
    const std::int64_t reaching =
        windows().sample_from(std::max<std::int64_t>(0, token - context_));
    const std::int64_t window = std::max(first, reaching);
    if (window >= last || window * stride_ > token) continue;
    std::int32_t value;
    shard.file.read(*bad, std::span(&value, 1));  // throws
  }
}

std::string TokenWindows::content() const {
  Hasher hasher;
  hasher.add("tokens");
  const auto shards = static_cast<std::int64_t>(shards_.size());
  constexpr std::int64_t least = 4096;
  for (const Shard& shard : shards_) {
    shard.file.add_identity(hasher, std::max(digest_bytes / shards, least));
  }
  return hasher.hex();
}

std::string TokenWindows::identity() const {
  Hasher hasher;
  hasher.add(content());
  hasher.add(vocabulary_);
  hasher.add(context_);
  hasher.add(stride_);
  return hasher.hex();
}

Extent TokenWindows::extent(std::int64_t first, std::int64_t last) const {
  return {content(), windows().first_unit(first), windows().first_unit(last - 1) + context_};
}

}  // namespace dtrain
