#include "dtrain/core/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>

#include <nlohmann/json.hpp>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace fs = std::filesystem;

// Lengths and elements are stored as they lie in memory.
static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::uint64_t length_bytes = sizeof(std::uint64_t);

std::string json_string(const fs::path& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw CheckpointError(path.string(),
                          "name " + quoted_tensor_name(text) + " is not valid UTF-8");
  }
}

// The JSON header, padded with spaces so that the data starts on an 8-byte border.
std::string make_header(const fs::path& path, std::span<const NamedTensor* const> in_name_order,
                        const std::map<const NamedTensor*, std::uint64_t>& begin_of,
                        const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    std::vector<std::string> items;
    for (const auto& [key, value] : metadata) {
      items.push_back(fmt::format("{}:{}", json_string(path, key), json_string(path, value)));
    }
    header += fmt::format("\"__metadata__\":{{{}}}", fmt::join(items, ","));
  }
  for (const NamedTensor* tensor : in_name_order) {
    if (header.size() > 1) header += ',';
    const std::uint64_t begin = begin_of.at(tensor);
    header +=
        fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    json_string(path, tensor->name), safetensors_name(tensor->dtype),
                    fmt::join(tensor->shape.sizes(), ","), begin, begin + tensor->bytes.size());
  }
  header += '}';
  header.append((length_bytes - header.size() % length_bytes) % length_bytes, ' ');
  return header;
}

// What a file that is no safetensors looks like; empty if it looks like nothing known.
std::string_view looks_like(std::string_view head) {
  const auto starts = [head](std::string_view what) { return head.starts_with(what); };
  if (starts("version https://git-lfs")) {
    return "this is a Git-LFS pointer, fetch the real file (git lfs pull)";
  }
  const std::size_t text = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (text != std::string_view::npos) {
    std::string lower(head.substr(text, 9));
    std::ranges::transform(lower, lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (lower.starts_with("<!do") || lower.starts_with("<html")) {
      return "this is an HTML page, not a safetensors file: fetch the file itself";
    }
  }
  if (starts("PK\x03\x04")) {
    return "this is a zip archive, perhaps of torch.save: convert it to safetensors";
  }
  if (starts("\x1f\x8b")) return "this is gzip-compressed: unpack it";
  return "";
}

}  // namespace

FileDigest write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> by_name;
  by_name.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) {
    DTRAIN_CHECK(tensor.name != "__metadata__", "a tensor is named __metadata__");
    DTRAIN_CHECK(tensor.bytes.size() ==
                     static_cast<std::uint64_t>(tensor.shape.elements()) * size_of(tensor.dtype),
                 "tensor {} of shape {} has {} bytes", tensor.name, to_string(tensor.shape),
                 tensor.bytes.size());
    by_name.push_back(&tensor);
  }
  std::ranges::sort(by_name, {}, &NamedTensor::name);
  for (std::size_t i = 1; i < by_name.size(); ++i) {
    DTRAIN_CHECK(by_name[i - 1]->name != by_name[i]->name, "two tensors are named {}",
                 by_name[i]->name);
  }
  std::vector<const NamedTensor*> by_place = by_name;
  std::ranges::stable_sort(by_place, std::ranges::greater{},
                           [](const NamedTensor* tensor) { return size_of(tensor->dtype); });

  std::map<const NamedTensor*, std::uint64_t> begin_of;
  std::uint64_t data_bytes = 0;
  for (const NamedTensor* tensor : by_place) {
    begin_of[tensor] = data_bytes;
    data_bytes += tensor->bytes.size();
  }
  const std::string header = make_header(path, by_name, begin_of, metadata);
  DTRAIN_CHECK(header.size() <= SafetensorsFile::max_header_bytes, "a header of {} bytes",
               header.size());
  const std::uint64_t header_bytes = header.size();

  DigestFileWriter file(path, length_bytes + header_bytes + data_bytes);
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(header);
  for (const NamedTensor* tensor : by_place) file.write(tensor->bytes);
  return file.finish();
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : path_(path) {
  std::uint64_t size = 0;
  fd_ = open_regular_file(path, &size);
  std::array<char, 256> head{};
  const std::size_t head_size = std::min<std::uint64_t>(size, head.size());
  read_exactly(fd_.get(), 0, std::as_writable_bytes(std::span(head).first(head_size)), path);
  const std::string_view other = looks_like({head.data(), head_size});

  if (size < length_bytes) {
    throw CheckpointError(
        path.string(),
        !other.empty()
            ? std::string(other)
            : fmt::format("too short for a safetensors file: {} bytes, at least 8 are needed",
                          size));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, head.data(), sizeof header_bytes);
  if (header_bytes > max_header_bytes || header_bytes > size - length_bytes) {
    // Text read as a length is a giant number: say what the text is rather than the number.
    if (!other.empty()) throw CheckpointError(path.string(), std::string(other));
    if (header_bytes > max_header_bytes) {
      throw CheckpointError(
          path.string(),
          fmt::format("not a safetensors file: its first 8 bytes claim a header of {} bytes, above "
                      "the limit of {}",
                      header_bytes, max_header_bytes));
    }
    throw CheckpointError(
        path.string(),
        fmt::format("header ends {} bytes early (file {}, needed {})",
                    header_bytes - (size - length_bytes), size, length_bytes + header_bytes));
  }
  std::string header(header_bytes, '\0');
  read_exactly(fd_.get(), length_bytes, std::as_writable_bytes(std::span(header)), path);
  data_start_ = length_bytes + header_bytes;
  entries_ = parse_safetensors_header(header, size - data_start_, path.string(), &metadata_);
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::ranges::sort(by_name_, {},
                    [this](std::uint32_t i) -> const std::string& { return entries_[i].name; });
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      by_name_, name, {}, [this](std::uint32_t i) -> std::string_view { return entries_[i].name; });
  if (found == by_name_.end() || entries_[*found].name != name) return nullptr;
  return &entries_[*found];
}

void SafetensorsFile::read(const TensorEntry& entry, std::span<std::byte> out) const {
  DTRAIN_CHECK(out.size() == entry.end - entry.begin, "{} bytes for tensor {} of {}", out.size(),
               entry.name, entry.end - entry.begin);
  read_exactly(fd_.get(), data_start_ + entry.begin, out, path_);
}

}  // namespace dtrain
