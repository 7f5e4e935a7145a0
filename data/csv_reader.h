// Splits text into records of fields: separated values as RFC 4180 has them, read piece by piece.
//
// Fields may be quoted and then hold separators, line breaks and doubled quotes. Lines end with LF,
// CRLF or CR; empty lines are left out; a byte order mark is skipped.
//
//   CsvReader reader(file, ',');
//   while (reader.next()) use(reader.fields(), reader.line());
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtrain/data/input_file.h"

namespace dtrain {

class CsvReader {
 public:
  // `file` must outlive the reader.
  CsvReader(const InputFile& file, char separator);

  // Goes to the next record; false at the end. Throws DataError: a quote that is not closed, text
  // behind a closing quote, a NUL byte, a field or record that is too long.
  bool next();
  std::span<const std::string> fields() const { return {fields_.data(), count_}; }
  // Line at which the record begins, from 1.
  std::int64_t line() const { return line_; }

 private:
  static constexpr int end_of_file = -1;

  int peek();
  int get();
  void read_record();
  void read_quoted(std::string& field);
  void read_plain(std::string& field);
  void append(std::string& field, int character);
  std::string& add_field();
  [[noreturn]] void fail(const std::string& message) const;

  const InputFile& file_;
  char separator_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;  // bytes of the buffer that were taken
  std::size_t filled_ = 0;
  std::uint64_t offset_ = 0;  // in the file, of the buffer's end
  // Fields of the record; strings behind `count_` are kept for their memory.
  std::vector<std::string> fields_;
  std::size_t count_ = 0;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
};

}  // namespace dtrain
