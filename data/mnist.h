// MNIST and data sets of the same form: ten classes of gray images in IDX files.
//
// Inputs are f32 [height, width, 1] in [0, 1] (byte / 255), targets class labels 0 to 9.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/data/dataset.h"
#include "dtrain/data/idx.h"

namespace dtrain {

class Mnist final : public Dataset {
 public:
  // Paths of the IDX files, plain or gzip. Throws DataError.
  Mnist(const std::string& images, const std::string& labels);

  std::int64_t size() const override { return images_.count(); }
  const SampleSpec& spec() const override { return spec_; }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;
  void check(std::int64_t first, std::int64_t last) const override;

 private:
  void check_label(std::int64_t index) const;

  IdxFile images_;
  std::string labels_path_;
  std::vector<std::uint8_t> labels_;
  SampleSpec spec_;
};

}  // namespace dtrain
