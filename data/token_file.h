// One file of tokens: bytes of any file, or numbers of 16 or 32 bits (little-endian), alone or
// behind the header of llm.c: 256 numbers of 32 bits, of which the first three are a magic number,
// the version and the count of tokens. Magic 20240520, version 1: 16 bits; 20240801, version 7: 32.
//
//   TokenFile file("train_000001.bin", {.vocabulary = 50257});
//   std::vector<std::int32_t> tokens(1024);
//   file.read(5000, tokens);
//
// Note [Reading tokens]: windows are read with pread rather than from a mapping. The pages are the
// page cache's in both cases, shared by all processes; but a file that is cut or replaced while it
// is mapped ends the process by SIGBUS, and here it is an error that names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dtrain/data/input_file.h"

namespace dtrain {

class Hasher;

enum class TokenFormat { any, raw, llmc };

struct TokenFileOptions {
  // Ids are in [0, vocabulary), at most 2^31 - 1.
  std::int64_t vocabulary = 256;
  // Bytes of a token: 1, 2 or 4. 0: what the header says; without one 2, or 4 for a vocabulary that
  // 2 cannot hold.
  int width = 0;
  TokenFormat format = TokenFormat::any;
};

class TokenFile {
 public:
  // Throws DataError: no file, no tokens, a header that is wrong or claims another size, a size
  // that is no whole number of tokens, another format, numbers of another width.
  TokenFile(const std::string& path, const TokenFileOptions& options);

  const std::string& path() const { return file_.path(); }
  std::int64_t size() const { return size_; }  // tokens
  int width() const { return width_; }

  // Tokens [first, first + tokens.size()). Thread-safe. Throws DataError that names the position
  // of a token outside the vocabulary; also where the file was changed since it was opened.
  void read(std::int64_t first, std::span<std::int32_t> tokens) const;

  // The first token at the head of the file that is outside the vocabulary, found when it was
  // opened.
  std::optional<std::int64_t> bad_token() const { return bad_token_; }

  // Adds width, size and up to `bytes` of the first tokens.
  void add_identity(Hasher& hasher, std::int64_t bytes) const;

 private:
  // Whether there is a header of llm.c; sets where tokens begin, their number and width.
  bool read_header(const TokenFileOptions& options);
  void read_raw(std::int64_t first, std::span<std::int32_t> tokens) const;
  void look_at_head(bool width_is_assumed);

  InputFile file_;
  std::int64_t vocabulary_;
  std::int64_t begin_ = 0;  // byte of the first token
  std::int64_t size_ = 0;
  int width_ = 1;
  std::optional<std::int64_t> bad_token_;
};

}  // namespace dtrain
