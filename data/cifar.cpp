#include "dtrain/data/cifar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"
#include "dtrain/data/foreign_format.h"
#include "dtrain/data/matching_files.h"

namespace dtrain {

namespace {

constexpr std::size_t side = 32;
constexpr std::size_t channels = 3;
constexpr std::size_t plane = side * side;
constexpr std::size_t pixels = channels * plane;
constexpr std::int64_t record_bytes_of_10 = 1 + pixels;
constexpr std::int64_t record_bytes_of_100 = 2 + pixels;

const char* name_of(CifarKind kind) {
  return kind == CifarKind::cifar10 ? "CIFAR-10" : "CIFAR-100";
}

}  // namespace

std::vector<std::string> cifar_files(const std::string& path, CifarKind kind, bool test) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return matching_files(path);
  const std::string_view name = kind == CifarKind::cifar10
                                    ? (test ? "test_batch.bin" : "data_batch_*.bin")
                                    : (test ? "test.bin" : "train.bin");
  // The folder's own name is no pattern.
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string file = entry.path().filename().string();
    const bool matches = name == "data_batch_*.bin"
                             ? file.starts_with("data_batch_") && file.ends_with(".bin")
                             : file == name;
    if (matches) files.push_back(entry.path().string());
  }
  if (files.empty()) {
    throw DataError(
        path, -1,
        fmt::format("the folder has no {}, as the binary version of {} does", name, name_of(kind)));
  }
  std::ranges::sort(files);
  return files;
}

Cifar::Cifar(const std::vector<std::string>& paths, CifarKind kind, CifarLabels labels)
    : kind_(kind),
      label_bytes_(kind == CifarKind::cifar10 ? 1 : 2),
      label_at_(kind == CifarKind::cifar100 && labels == CifarLabels::fine ? 1 : 0),
      record_bytes_(label_bytes_ + static_cast<std::int64_t>(pixels)) {
  spec_.input = {DType::f32, Shape{side, side, channels}};
  spec_.target = {DType::i64, Shape{}};
  spec_.classes = kind == CifarKind::cifar10 ? 10 : labels == CifarLabels::fine ? 100 : 20;
  for (const std::string& path : paths) add_file(path);
}

void Cifar::add_file(const std::string& path) {
  InputFile file(path);
  const auto bytes = static_cast<std::int64_t>(file.size());
  if (bytes == 0) throw DataError(path, -1, "file is empty");
  if (bytes % record_bytes_ != 0) {
    std::array<std::byte, 64> head;
    const std::string_view other = foreign_format(std::span(head).first(file.read_at(0, head)));
    if (!other.empty()) {
      throw DataError(path, -1, fmt::format("is {}, not records of {}", other, name_of(kind_)));
    }
    const bool is_10 = kind_ == CifarKind::cifar10;
    const std::int64_t other_bytes = is_10 ? record_bytes_of_100 : record_bytes_of_10;
    if (bytes % other_bytes == 0) {
      throw DataError(
          path, -1,
          fmt::format("{} bytes are {} records of {} bytes, as {} has, and not of {}, as {} has "
                      "(rest {}): use kind: {}",
                      bytes, bytes / other_bytes, other_bytes, is_10 ? "CIFAR-100" : "CIFAR-10",
                      record_bytes_, name_of(kind_), bytes % record_bytes_,
                      is_10 ? "cifar100" : "cifar10"));
    }
    throw DataError(path, bytes / record_bytes_,
                    fmt::format("is cut: {} of {} bytes (the file has {})", bytes % record_bytes_,
                                record_bytes_, bytes));
  }
  const std::int64_t first = size();
  const std::int64_t records = bytes / record_bytes_;
  labels_.resize(static_cast<std::size_t>(first + records));
  for (std::int64_t i = 0; i < records; ++i) {
    std::uint8_t& label = labels_[static_cast<std::size_t>(first + i)];
    const auto at = static_cast<std::uint64_t>(i * record_bytes_ + label_at_);
    if (file.read_at(at, std::as_writable_bytes(std::span(&label, 1))) != 1) {
      throw DataError(path, i, "the file became shorter while it was in use");
    }
  }
  batches_.push_back({std::move(file), first});
}

const Cifar::Batch& Cifar::batch_of(std::int64_t index) const {
  DTRAIN_CHECK(index >= 0 && index < size(), "record {} of {}", index, size());
  return *std::prev(std::ranges::upper_bound(batches_, index, {}, &Batch::first));
}

void Cifar::check_label(std::int64_t index) const {
  const int label = labels_[static_cast<std::size_t>(index)];
  if (label < spec_.classes) return;
  const Batch& batch = batch_of(index);
  throw DataError(batch.file.path(), index - batch.first,
                  fmt::format("label {}, but there are {} classes (0 to {})", label, spec_.classes,
                              spec_.classes - 1));
}

void Cifar::check(std::int64_t first, std::int64_t last) const {
  for (std::int64_t i = first; i < last; ++i) check_label(i);
}

void Cifar::read(std::int64_t index, std::span<std::byte> input,
                 std::span<std::byte> target) const {
  const Batch& batch = batch_of(index);
  check_label(index);
  std::array<std::uint8_t, pixels> planes;
  const std::int64_t record = index - batch.first;
  const auto at = static_cast<std::uint64_t>(record * record_bytes_ + label_bytes_);
  if (batch.file.read_at(at, std::as_writable_bytes(std::span(planes))) != planes.size()) {
    throw DataError(batch.file.path(), record, "the file became shorter while it was in use");
  }
  for (std::size_t i = 0; i < plane; ++i) {
    std::array<float, channels> pixel;
    for (std::size_t c = 0; c < channels; ++c) {
      pixel[c] = static_cast<float>(planes[c * plane + i]) / 255.0f;
    }
    std::memcpy(input.data() + i * sizeof pixel, pixel.data(), sizeof pixel);
  }
  const std::int64_t label = labels_[static_cast<std::size_t>(index)];
  std::memcpy(target.data(), &label, sizeof label);
}

std::string Cifar::origin(std::int64_t index) const {
  const Batch& batch = batch_of(index);
  return fmt::format("{}: record {}", batch.file.path(), index - batch.first);
}

std::string Cifar::identity() const {
  Hasher hasher;
  hasher.add("cifar");
  hasher.add(record_bytes_);
  hasher.add(label_at_);
  hasher.add(std::as_bytes(std::span(labels_)));
  // The head of each file; its labels are all in.
  for (const Batch& batch : batches_) {
    constexpr std::uint64_t head = std::uint64_t{1} << 18;
    std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(head, batch.file.size())));
    bytes.resize(batch.file.read_at(0, bytes));
    hasher.add(bytes.size());
    hasher.add(bytes);
  }
  return hasher.hex();
}

}  // namespace dtrain
