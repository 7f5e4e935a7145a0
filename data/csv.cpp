#include "dtrain/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/ranges.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"
#include "dtrain/core/config/suggest.h"
#include "dtrain/data/csv_reader.h"

namespace dtrain {

namespace {

// More than that many bad rows are no accident; each is kept with its reason.
constexpr std::size_t most_bad_rows = 10000;
// A class number beyond it is a mistaken column: the model would need as many outputs.
constexpr std::int64_t most_classes = std::int64_t{1} << 24;

// What is wrong with one row; becomes a DataError that names file and row.
class BadRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// A field as it may stand in a message: short, and in one line.
std::string shown(std::string_view field) {
  std::string text(field.substr(0, 40));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return fmt::format("'{}{}'", text, field.size() > 40 ? "..." : "");
}

char separator_of(const config::Csv& options) {
  const std::string& text = options.separator();
  if (text.size() != 1 || text[0] == '"' || text[0] == '\n' || text[0] == '\r' || text[0] == '\0') {
    throw ConfigError(fmt::format(
        "csv.separator: '{}' is not one character (and neither quote nor line break)", text));
  }
  return text[0];
}

}  // namespace

Csv::Csv(const config::Csv& options) : path_(options.path()), classes_(options.classes()) {
  const char separator = separator_of(options);
  if (options.features().empty()) throw ConfigError("csv.features: names no column");
  if (options.targets().empty()) throw ConfigError("csv.targets: names no column");
  if (classes_ && options.targets_size() != 1) {
    throw ConfigError(
        fmt::format("csv.classes: needs one target column, not {}", options.targets_size()));
  }
  const InputFile file(path_);
  if (file.size() == 0) throw DataError(path_, -1, "file is empty");
  CsvReader reader(file, separator);
  if (!reader.next()) throw DataError(path_, -1, "has no header line");
  const std::size_t header_fields = reader.fields().size();
  find_columns(options, reader.fields());
  while (reader.next()) add_row(reader.fields(), header_fields, reader.line());
  if (rows_ == 0) throw DataError(path_, -1, "has a header line, but no data");
  inputs_.shrink_to_fit();
  targets_f32_.shrink_to_fit();
  labels_.shrink_to_fit();

  spec_.input = {DType::f32, Shape{options.features_size()}};
  if (classes_) {
    spec_.target = {DType::i64, Shape{}};
    spec_.classes = *std::max_element(labels_.begin(), labels_.end()) + 1;
  } else {
    spec_.target = {DType::f32, Shape{options.targets_size()}};
  }
}

void Csv::find_columns(const config::Csv& options, std::span<const std::string> header) {
  std::vector<std::string> names;
  for (const std::string& field : header) names.emplace_back(trim(field));
  const auto find = [&](const std::string& name) -> Column {
    const auto first = std::find(names.begin(), names.end(), name);
    if (first == names.end()) {
      constexpr std::size_t most = 20;
      const std::span<const std::string> listed =
          std::span(std::as_const(names)).first(std::min(most, names.size()));
      const std::string nearest = config_internal::nearest_word(name, names);
      throw DataError(path_, -1,
                      fmt::format("no column '{}'; {}the header has {}{}", name,
                                  nearest.empty() ? "" : "did you mean '" + nearest + "'? ",
                                  fmt::join(listed, ", "), names.size() > most ? ", ..." : ""));
    }
    if (std::find(first + 1, names.end(), name) != names.end()) {
      throw DataError(path_, -1, fmt::format("two columns are called '{}'", name));
    }
    return {static_cast<std::size_t>(first - names.begin()), name};
  };
  for (const std::string& name : options.features()) features_.push_back(find(name));
  for (const std::string& name : options.targets()) targets_.push_back(find(name));
}

void Csv::add_row(std::span<const std::string> fields, std::size_t header_fields,
                  std::int64_t line) {
  const std::size_t inputs = inputs_.size();
  const std::size_t targets = targets_f32_.size();
  try {
    if (fields.size() != header_fields) {
      throw BadRow(fmt::format("{} fields, but the header has {}", fields.size(), header_fields));
    }
    for (const Column& column : features_) {
      inputs_.push_back(number(column, fields[column.index]));
    }
    if (classes_) {
      labels_.push_back(label(targets_[0], fields[targets_[0].index]));
    } else {
      for (const Column& column : targets_) {
        targets_f32_.push_back(number(column, fields[column.index]));
      }
    }
  } catch (const BadRow& error) {
    bad_rows_.emplace(rows_, fmt::format("line {}: {}", line, error.what()));
    if (bad_rows_.size() > most_bad_rows) check(0, rows_ + 1);
    // The row keeps its place, so that row numbers stay those of the file.
    inputs_.resize(inputs + features_.size());
    if (classes_) {
      labels_.push_back(0);
    } else {
      targets_f32_.resize(targets + targets_.size());
    }
  }
  ++rows_;
}

float Csv::number(const Column& column, const std::string& field) const {
  std::string_view text = trim(field);
  if (text.empty()) throw BadRow(fmt::format("column '{}': no value", column.name));
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    throw BadRow(fmt::format("column '{}': {} is not a number", column.name, shown(field)));
  }
  const auto result = static_cast<float>(value);
  if (error == std::errc::result_out_of_range || (std::isfinite(value) && !std::isfinite(result))) {
    throw BadRow(fmt::format("column '{}': {} is out of the range of 32-bit floats", column.name,
                             shown(field)));
  }
  if (!std::isfinite(result)) {
    throw BadRow(fmt::format("column '{}': {} is not finite", column.name, shown(field)));
  }
  return result;
}

std::int64_t Csv::label(const Column& column, const std::string& field) const {
  const float value = number(column, field);
  if (!(value >= 0 && value < static_cast<float>(most_classes)) || value != std::floor(value)) {
    throw BadRow(fmt::format("column '{}': {} is not a class number (0 to {})", column.name,
                             shown(field), most_classes - 1));
  }
  return static_cast<std::int64_t>(value);
}

void Csv::check(std::int64_t first, std::int64_t last) const {
  const auto bad = bad_rows_.lower_bound(first);
  if (bad != bad_rows_.end() && bad->first < last) throw DataError(path_, bad->first, bad->second);
}

void Csv::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  DTRAIN_CHECK(index >= 0 && index < rows_, "row {} of {}", index, rows_);
  check(index, index + 1);
  const auto row = static_cast<std::size_t>(index);
  std::memcpy(input.data(), inputs_.data() + row * features_.size(),
              features_.size() * sizeof(float));
  if (classes_) {
    std::memcpy(target.data(), &labels_[row], sizeof(std::int64_t));
  } else {
    std::memcpy(target.data(), targets_f32_.data() + row * targets_.size(),
                targets_.size() * sizeof(float));
  }
}

std::string Csv::origin(std::int64_t index) const {
  return fmt::format("{}: row {}", path_, index);
}

std::string Csv::identity() const {
  Hasher hasher;
  hasher.add("csv");
  for (const Column& column : features_) hasher.add(column.name);
  hasher.add("targets");
  for (const Column& column : targets_) hasher.add(column.name);
  hasher.add(rows_);
  hasher.add(std::as_bytes(std::span(inputs_)));
  hasher.add(std::as_bytes(std::span(targets_f32_)));
  hasher.add(std::as_bytes(std::span(labels_)));
  for (const auto& [row, reason] : bad_rows_) hasher.add(row);
  return hasher.hex();
}

}  // namespace dtrain
