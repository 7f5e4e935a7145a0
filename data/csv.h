// Tables in text form: a header line that names the columns, then a sample a line.
//
// The input is the feature columns, f32 [features]; the target the target columns, f32 [targets],
// or with `classes` one column of class numbers, i64 []. Values are held in memory as such.
//
// A line whose values cannot be used is a bad sample, which check() and read() report; a file that
// cannot be split into lines and fields is an error at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/data/dataset.h"

namespace dtrain {

class Csv final : public Dataset {
 public:
  // Throws ConfigError: keys that do not fit each other; DataError: the file.
  explicit Csv(const config::Csv& options);

  std::int64_t size() const override { return rows_; }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;
  void check(std::int64_t first, std::int64_t last) const override;

 private:
  // A column to read: where it stands in a line, and its name.
  struct Column {
    std::size_t index;
    std::string name;
  };

  void find_columns(const config::Csv& options, std::span<const std::string> header);
  void add_row(std::span<const std::string> fields, std::size_t header_fields, std::int64_t line);
  float number(const Column& column, const std::string& field) const;
  std::int64_t label(const Column& column, const std::string& field) const;

  std::string path_;
  std::vector<Column> features_;
  std::vector<Column> targets_;
  bool classes_;
  SampleSpec spec_;
  std::int64_t rows_ = 0;
  std::vector<float> inputs_;                     // [rows, features]
  std::vector<float> targets_f32_;                // [rows, targets], or
  std::vector<std::int64_t> labels_;              // [rows]
  std::map<std::int64_t, std::string> bad_rows_;  // row -> reason
};

}  // namespace dtrain
