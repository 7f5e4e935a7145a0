// A contiguous part of a data set, one or several times over: what `offset`, `size` and `repeat`
// of a recipe's data source make.
//
// Sample i of the part is sample offset + i % size of the whole.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "dtrain/data/dataset.h"

namespace dtrain {

class Subset final : public Dataset {
 public:
  // 0 <= offset, 1 <= size, offset + size <= whole->size(), 1 <= repeat.
  Subset(std::unique_ptr<Dataset> whole, std::int64_t offset, std::int64_t size,
         std::int64_t repeat);

  std::int64_t size() const override { return size_ * repeat_; }
  const SampleSpec& spec() const override { return whole_->spec(); }
  void read(std::int64_t index, std::span<std::byte> input,
            std::span<std::byte> target) const override;
  std::string origin(std::int64_t index) const override;
  std::string identity() const override;
  void check(std::int64_t first, std::int64_t last) const override;
  Windows windows() const override { return {.units = size()}; }
  Extent extent(std::int64_t first, std::int64_t last) const override;

 private:
  // Samples of the whole that samples [first, last) are among.
  std::pair<std::int64_t, std::int64_t> range_in_whole(std::int64_t first, std::int64_t last) const;
  std::int64_t index_in_whole(std::int64_t index) const { return offset_ + index % size_; }

  std::unique_ptr<Dataset> whole_;
  std::int64_t offset_;
  std::int64_t size_;
  std::int64_t repeat_;
};

}  // namespace dtrain
