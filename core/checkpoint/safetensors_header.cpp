// Reads the JSON header of a safetensors file.
//
// The file is taken as hostile. The JSON is never built as a tree: events of the parser, which
// keeps its own stack, are checked one by one, so nesting, duplicate names and numbers that JSON
// would round are refused where they stand.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/text.h"
#include "dtrain/core/checkpoint/safetensors.h"

namespace dtrain {

namespace {

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr DTypeName dtype_names[] = {{"F32", DType::f32}, {"BF16", DType::bf16},
                                     {"F16", DType::f16}, {"I32", DType::i32},
                                     {"I64", DType::i64}, {"U8", DType::u8}};

std::optional<DType> dtype_from(std::string_view name) {
  for (const DTypeName& known : dtype_names) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

constexpr std::uint64_t number_limit = std::uint64_t{1} << 63;

// Listens to the parser. Each event returns whether to go on; `problem` tells why not.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::before:
        place_ = Place::top;
        return true;
      case Place::value:
        if (name_ == "__metadata__") {
          place_ = Place::metadata;
          return true;
        }
        place_ = Place::tensor;
        entries.emplace_back().name = name_;
        has_dtype_ = false;
        sizes_.reset();
        offsets_.reset();
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    switch (place_) {
      case Place::top:
        if (!names_.insert(key).second) {
          return fail(key == "__metadata__"
                          ? "__metadata__ stands twice"
                          : "tensor " + quoted_tensor_name(key) + ": the name stands twice");
        }
        name_ = key;
        place_ = Place::value;
        return true;
      case Place::metadata:
        if (metadata.contains(key)) {
          return fail("__metadata__: " + quoted_tensor_name(key) + " stands twice");
        }
        field_ = key;
        return true;
      default:
        if (key != "dtype" && key != "shape" && key != "data_offsets") {
          return tensor_fails("unknown field " + quoted_tensor_name(key));
        }
        if ((key == "dtype" && has_dtype_) || (key == "shape" && sizes_) ||
            (key == "data_offsets" && offsets_)) {
          return tensor_fails(key + " stands twice");
        }
        field_ = key;
        return true;
    }
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (!finish_tensor()) return false;
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && field_ == "shape") {
      sizes_.emplace();
    } else if (place_ == Place::tensor && field_ == "data_offsets") {
      offsets_.emplace();
    } else {
      return unexpected("an array");
    }
    place_ = Place::numbers;
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata.emplace(field_, value);
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") {
      return unexpected(quoted_tensor_name(value));
    }
    const std::optional<DType> dtype = dtype_from(value);
    if (!dtype) {
      return tensor_fails("dtype " + quoted_tensor_name(value) +
                          " is not one of F32, BF16, F16, I32, I64, U8");
    }
    entries.back().dtype = *dtype;
    has_dtype_ = true;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::numbers) return unexpected(fmt::format("{}", value));
    if (value >= number_limit)
      return tensor_fails(fmt::format("{}: {} is too large", field_, value));
    if (field_ == "shape") {
      if (sizes_->size() == Shape::max_rank) {
        return tensor_fails(fmt::format("shape of more than {} axes", Shape::max_rank));
      }
      sizes_->push_back(static_cast<std::int64_t>(value));
    } else {
      if (offsets_->size() == 2) return tensor_fails("data_offsets are not two numbers");
      offsets_->push_back(value);
    }
    return true;
  }

  bool number_integer(number_integer_t value) override {
    return not_a_size(fmt::format("{}", value), "is negative");
  }
  bool number_float(number_float_t, const string_t& text) override {
    return not_a_size(text, "is not an integer below 2^63");
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: <reason>"
    std::string reason = error.what();
    if (const auto cut = reason.find(": "); cut != std::string::npos) reason.erase(0, cut + 2);
    if (reason.size() > 200) reason = reason.substr(0, 200) + "...";
    const std::string after = names_.empty() ? "" : ", after " + quoted_tensor_name(name_);
    return fail(fmt::format("header is not valid JSON at byte {}{}: {}", position, after, reason));
  }

 private:
  enum class Place { before, top, value, metadata, tensor, numbers };

  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool tensor_fails(const std::string& text) {
    return fail("tensor " + quoted_tensor_name(name_) + ": " + text);
  }
  bool not_a_size(const std::string& text, std::string_view what) {
    if (place_ != Place::numbers) return unexpected(text);
    return tensor_fails(fmt::format("{}: {} {}", field_, text, what));
  }

  bool unexpected(const std::string& what) {
    switch (place_) {
      case Place::before:
      case Place::top:
        return fail("header is not a JSON object, but " + what);
      case Place::value:
        return name_ == "__metadata__" ? fail("__metadata__ is not an object, but " + what)
                                       : tensor_fails("its entry is not an object, but " + what);
      case Place::metadata:
        return fail("__metadata__: value of " + quoted_tensor_name(field_) +
                    " is not a string, but " + what);
      default:
        return tensor_fails(field_ + " has no place for " + what);
    }
  }

  bool finish_tensor() {
    TensorEntry& entry = entries.back();
    if (!has_dtype_) return tensor_fails("dtype is missing");
    if (!sizes_) return tensor_fails("shape is missing");
    if (!offsets_) return tensor_fails("data_offsets are missing");
    if (offsets_->size() != 2) return tensor_fails("data_offsets are not two numbers");
    entry.begin = (*offsets_)[0];
    entry.end = (*offsets_)[1];
    if (entry.begin > entry.end) {
      return tensor_fails(
          fmt::format("data_offsets [{}, {}] end before they begin", entry.begin, entry.end));
    }
    // Axes of size 0 are left out of the check, so that no product of part of the axes, which a
    // reader may take, wraps either.
    std::int64_t nonzero = static_cast<std::int64_t>(size_of(entry.dtype));
    bool empty = false;
    for (std::int64_t size : *sizes_) {
      if (size == 0) {
        empty = true;
      } else if (__builtin_mul_overflow(nonzero, size, &nonzero)) {
        return tensor_fails(fmt::format("shape [{}] is too large: its bytes do not fit 63 bits",
                                        fmt::join(*sizes_, ", ")));
      }
    }
    const std::uint64_t bytes = empty ? 0 : static_cast<std::uint64_t>(nonzero);
    if (bytes != entry.end - entry.begin) {
      return tensor_fails(
          fmt::format("shape [{}] of {} takes {} bytes, but data_offsets [{}, {}] hold {}",
                      fmt::join(*sizes_, ", "), safetensors_name(entry.dtype), bytes, entry.begin,
                      entry.end, entry.end - entry.begin));
    }
    entry.shape = Shape(std::span<const std::int64_t>(*sizes_));
    return true;
  }

  Place place_ = Place::before;
  std::string name_;   // of the tensor, or "__metadata__"
  std::string field_;  // key inside of it
  std::unordered_set<std::string> names_;
  bool has_dtype_ = false;
  std::optional<std::vector<std::int64_t>> sizes_;
  std::optional<std::vector<std::uint64_t>> offsets_;
};

// The tensors, sorted by place, must lie one after the other and fill the data section. Returns
// what is wrong, or nothing.
std::string coverage_problem(const std::vector<TensorEntry>& entries, std::uint64_t data_start,
                             std::uint64_t data_bytes) {
  const TensorEntry* last = nullptr;
  for (const TensorEntry& entry : entries) {
    if (!last || entry.end > last->end) last = &entry;
  }
  if (last && last->end > data_bytes) {
    return fmt::format("tensor {}: data ends {} early (file {}, needed {})",
                       quoted_tensor_name(last->name),
                       counted(static_cast<std::int64_t>(last->end - data_bytes), "byte"),
                       data_start + data_bytes, data_start + last->end);
  }
  std::uint64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.begin < covered) {
      return fmt::format("tensor {}: data_offsets [{}, {}] overlap tensor {} at [{}, {}]",
                         quoted_tensor_name(entry.name), entry.begin, entry.end,
                         quoted_tensor_name(previous->name), previous->begin, previous->end);
    }
    if (entry.begin > covered) {
      return fmt::format("tensor {}: {} bytes before its data belong to no tensor (a hole)",
                         quoted_tensor_name(entry.name), entry.begin - covered);
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered < data_bytes) {
    const std::string after = previous ? " after tensor " + quoted_tensor_name(previous->name) : "";
    return fmt::format("{} trailing bytes{} belong to no tensor", data_bytes - covered, after);
  }
  return "";
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const DTypeName& known : dtype_names) {
    if (known.dtype == dtype) return known.name;
  }
  return "?";
}

std::string quoted_tensor_name(std::string_view name) {
  constexpr std::size_t longest = 120;
  std::size_t cut = name.size();
  if (cut > longest) {
    // Not inside of a UTF-8 character.
    for (cut = longest; cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xc0) == 0x80;) --cut;
  }
  std::string text = "'";
  for (const char c : name.substr(0, cut)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + (cut < name.size() ? "...'" : "'");
}

std::vector<TensorEntry> parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                                                  const std::string& path,
                                                  std::map<std::string, std::string>* metadata) {
  if (header.empty() || header.front() != '{') {
    throw CheckpointError(path, "not a safetensors file: its header does not start with '{'");
  }
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &events)) {
    throw CheckpointError(path, events.problem);
  }
  std::vector<TensorEntry> entries = std::move(events.entries);
  std::ranges::sort(entries, [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const std::string problem =
      coverage_problem(entries, sizeof(std::uint64_t) + header.size(), data_bytes);
  if (!problem.empty()) throw CheckpointError(path, problem);
  if (metadata) *metadata = std::move(events.metadata);
  return entries;
}

}  // namespace dtrain
