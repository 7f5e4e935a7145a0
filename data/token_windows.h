// Windows over a row of tokens, in which every token predicts the next: the kinds `text` (bytes)
// and `tokens` (ids).
//
// Sample i has tokens [i * stride, i * stride + T) as input, i32 [T], and the tokens behind each of
// them as targets, i64 [T]. The files of `tokens` are one row, in their order: a window may begin
// in one file and end in the next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/data/dataset.h"
#include "dtrain/data/token_file.h"

namespace dtrain {

struct TokenWindowsOptions {
  std::vector<std::string> paths;
  TokenFileOptions file;
  std::int64_t context = 0;  // T
  std::int64_t stride = 0;   // tokens between the beginnings of windows; 0: context
  double bytes_per_token = 0;
};

TokenWindowsOptions text_windows(const config::Text& options);
TokenWindowsOptions token_windows(const config::Tokens& options);

class TokenWindows final : public Dataset {
 public:
  // Throws DataError: see TokenFile; fewer tokens than one window needs.
  explicit TokenWindows(const TokenWindowsOptions& options);

  std::int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;
  void check(std::int64_t first, std::int64_t last) const override;
  // A unit is a target: token u + 1 of the row.
  Windows windows() const override {
    return {.units = tokens_ - 1, .length = context_, .stride = stride_};
  }
  Extent extent(std::int64_t first, std::int64_t last) const override;

 private:
  struct Shard {
    TokenFile file;
    std::int64_t first;  // of its tokens in the row
  };

  const Shard& shard_of(std::int64_t token) const;
  std::string content() const;

  std::vector<Shard> shards_;
  std::int64_t tokens_ = 0;
  std::int64_t vocabulary_;
  std::int64_t context_;
  std::int64_t stride_;
  std::int64_t size_ = 0;
  SampleSpec spec_;
};

}  // namespace dtrain
