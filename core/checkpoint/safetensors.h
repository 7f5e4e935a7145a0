// The safetensors format: an 8-byte little-endian header length, a JSON header of names, types,
// shapes and byte ranges, then the data. Files from elsewhere are read as hostile: every number is
// checked before it is used, and no allocation exceeds the size of the file.
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
#include <vector>

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

// Writes the file at `path` and syncs it; the same tensors give the same bytes (entries stand in
// name order, no time, no version). `sink` sees every byte in order, for digests. Throws
// CheckpointError with path and cause; a partial file may remain.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;  // bytes from the start of the data section
  std::uint64_t end = 0;
};

// Parses a header. `data_bytes`: size of the data section. Throws CheckpointError with tensor name
// and reason. Accepts trailing spaces, `__metadata__`, shapes [] and [0].
std::vector<TensorEntry> parse_safetensors_header(const std::string& header,
                                                  std::uint64_t data_bytes,
                                                  const std::string& path,
                                                  std::map<std::string, std::string>* metadata);

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws CheckpointError that says what the file looks like where
  // it is something else: a Git-LFS pointer, an HTML page, too short, "data ends N bytes early".
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* find(const std::string& name) const;
  // Reads the tensor's bytes into `out`, which has exactly that size.
  void read(const TensorEntry& entry, std::span<std::byte> out) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_start_ = 0;
};

}  // namespace dtrain
