#include "dtrain/data/csv_reader.h"

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Bounds that real tables keep, so that a forgotten quote does not swallow a file of gigabytes.
constexpr std::size_t longest_field = std::size_t{1} << 20;
constexpr std::size_t most_fields = std::size_t{1} << 20;
constexpr std::size_t buffer_bytes = std::size_t{64} << 10;

}  // namespace

CsvReader::CsvReader(const InputFile& file, char separator)
    : file_(file), separator_(separator), buffer_(buffer_bytes) {
  std::byte mark[3];
  const std::size_t n = file.read_at(0, mark);
  const std::string_view head(reinterpret_cast<const char*>(mark), n);
  if (head == "\xEF\xBB\xBF") offset_ = 3;
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) fail("is UTF-16, not UTF-8");
  if (head.starts_with("\x1F\x8B")) fail("is gzip; unpack it first");
  if (head.starts_with("PK\x03")) fail("is a zip archive or a spreadsheet, not text");
}

void CsvReader::fail(const std::string& message) const {
  throw DataError(file_.path(), -1, message);
}

int CsvReader::peek() {
  if (used_ == filled_) {
    filled_ = file_.read_at(offset_, buffer_);
    offset_ += filled_;
    used_ = 0;
    if (filled_ == 0) return end_of_file;
  }
  return std::to_integer<int>(buffer_[used_]);
}

int CsvReader::get() {
  const int character = peek();
  if (character == end_of_file) return character;
  ++used_;
  if (character == 0) fail(fmt::format("line {}: a NUL byte; is this a text file?", next_line_));
  // Line breaks count once: CRLF at its LF, a lone CR itself.
  if (character == '\n' || (character == '\r' && peek() != '\n')) ++next_line_;
  return character;
}

std::string& CsvReader::add_field() {
  if (count_ == most_fields) fail(fmt::format("line {}: more than {} fields", line_, most_fields));
  if (count_ == fields_.size()) fields_.emplace_back();
  std::string& field = fields_[count_++];
  field.clear();
  return field;
}

void CsvReader::append(std::string& field, int character) {
  if (field.size() == longest_field) {
    fail(fmt::format("line {}: field {} is longer than {} bytes; is a quote not closed?", line_,
                     count_, longest_field));
  }
  field.push_back(static_cast<char>(character));
}

bool CsvReader::next() {
  do {
    line_ = next_line_;
    count_ = 0;
    if (peek() == end_of_file) return false;
    read_record();
  } while (count_ == 0);
  return true;
}

// Leaves no field for an empty line.
void CsvReader::read_record() {
  bool quoted = false;
  while (true) {
    std::string& field = add_field();
    if (peek() == '"') {
      read_quoted(field);
      quoted = true;
    } else {
      read_plain(field);
    }
    const int end = get();
    if (end == static_cast<unsigned char>(separator_)) continue;
    if (end == '\r' && peek() == '\n') get();
    if (end == '\n' || end == '\r' || end == end_of_file) break;
    fail(fmt::format("line {}: field {} goes on behind its closing quote", line_, count_));
  }
  if (count_ == 1 && fields_[0].empty() && !quoted) count_ = 0;
}

void CsvReader::read_plain(std::string& field) {
  while (true) {
    const int next = peek();
    if (next == end_of_file || next == '\n' || next == '\r' ||
        next == static_cast<unsigned char>(separator_)) {
      return;
    }
    append(field, get());
  }
}

void CsvReader::read_quoted(std::string& field) {
  const std::int64_t opened = next_line_;
  get();
  while (true) {
    const int character = get();
    if (character == end_of_file) fail(fmt::format("line {}: a quote is not closed", opened));
    if (character == '"') {
      if (peek() != '"') return;
      get();
    }
    append(field, character);
  }
}

}  // namespace dtrain
