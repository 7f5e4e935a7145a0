// CIFAR-10 and CIFAR-100 in their binary versions: records of labels and the red, green and blue
// planes of 32 x 32 pixels.
//
//   CIFAR-10:  label, 3,072 pixels             CIFAR-100:  coarse label, fine label, 3,072 pixels
//
// Inputs are f32 [32, 32, 3] in [0, 1] (byte / 255), targets class labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/data/dataset.h"
#include "dtrain/data/input_file.h"

namespace dtrain {

enum class CifarKind { cifar10, cifar100 };
enum class CifarLabels { fine, coarse };  // of CIFAR-100

// The files that `path` means: those of the split where it is a folder (data_batch_1.bin, ... and
// test_batch.bin of CIFAR-10, train.bin and test.bin of CIFAR-100), else as matching_files does.
// Throws DataError where there are none.
std::vector<std::string> cifar_files(const std::string& path, CifarKind kind, bool test);

class Cifar final : public Dataset {
 public:
  // The records of all files in a row. Throws DataError: a file that is no whole number of records.
  Cifar(const std::vector<std::string>& paths, CifarKind kind, CifarLabels labels);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;
  void check(std::int64_t first, std::int64_t last) const override;

 private:
  struct Batch {
    InputFile file;
    std::int64_t first;  // index of its first record
  };

  void add_file(const std::string& path);
  const Batch& batch_of(std::int64_t index) const;
  void check_label(std::int64_t index) const;

  CifarKind kind_;
  std::int64_t label_bytes_;  // in front of a record's pixels
  std::int64_t label_at_;     // which of them counts
  std::int64_t record_bytes_;
  std::vector<Batch> batches_;
  std::vector<std::uint8_t> labels_;
  SampleSpec spec_;
};

}  // namespace dtrain
