// The safetensors format: an 8-byte little-endian header length, a JSON header of names, types,
// shapes and byte ranges, then the data. Files from elsewhere are read as hostile: every number is
// checked before it is used, and no allocation follows a number that the file merely claims.
//
//   write_safetensors("model.safetensors", tensors);
//   SafetensorsFile file("model.safetensors");
//   for (const TensorEntry& entry : file.entries()) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/base/files.h"
#include "dtrain/core/checkpoint/digest_file.h"
#include "dtrain/core/tensor/dtype.h"
#include "dtrain/core/tensor/shape.h"

namespace dtrain {

// A tensor to write: `bytes` in row-major order.
struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// Writes the file at `path`, syncs it, and returns size and digest of its bytes. The same tensors
// give the same bytes in whatever order they come: the header is in name order, the data in order
// of (element size, descending; name), so that each tensor is aligned to its elements. Throws
// CheckpointError with path and cause; a partial file may remain.
FileDigest write_safetensors(const std::filesystem::path& path,
                             std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {});

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;  // bytes from the start of the data section
  std::uint64_t end = 0;
};

// Parses a header and returns its entries in the order of their data. `data_bytes`: size of the
// data section, which the tensors must cover without overlap, hole or rest. Throws CheckpointError
// with `path`, tensor name and reason. Accepts trailing spaces, `__metadata__`, shapes [] and [0].
std::vector<TensorEntry> parse_safetensors_header(
    std::string_view header, std::uint64_t data_bytes, const std::string& path,
    std::map<std::string, std::string>* metadata = nullptr);

// "F32": as it stands in the header.
std::string_view safetensors_name(DType dtype);

// A tensor name for a message: in quotes, control characters escaped, cut if very long.
std::string quoted_tensor_name(std::string_view name);

class SafetensorsFile {
 public:
  // Headers above this size are refused, as everywhere in the world of this format.
  static constexpr std::uint64_t max_header_bytes = 100'000'000;

  // Reads and checks the header. Throws CheckpointError that says what the file looks like where
  // it is something else: a Git-LFS pointer, an HTML page, too short, "data ends N bytes early".
  explicit SafetensorsFile(const std::filesystem::path& path);

  // In the order of their data: reading them so reads the file from front to back.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Null if the file has no tensor of that name.
  const TensorEntry* find(std::string_view name) const;
  // Reads the tensor's bytes into `out`, which has exactly that size. Throws CheckpointError.
  void read(const TensorEntry& entry, std::span<std::byte> out) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::vector<TensorEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // indices of entries_, in name order
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_start_ = 0;
};

}  // namespace dtrain
