#include "dtrain/data/subset.h"

#include <utility>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {

Subset::Subset(std::unique_ptr<Dataset> whole, std::int64_t offset, std::int64_t size,
               std::int64_t repeat)
    : whole_(std::move(whole)), offset_(offset), size_(size), repeat_(repeat) {
  const std::int64_t there = whole_->size();
  DTRAIN_CHECK(offset >= 0 && size >= 1 && offset <= there && size <= there - offset,
               "{} samples from {} on, of {}", size, offset, there);
  DTRAIN_CHECK(repeat >= 1 && repeat <= INT64_MAX / size, "{} times {} samples", repeat, size);
}

void Subset::read(std::int64_t index, std::span<std::byte> input,
                  std::span<std::byte> target) const {
  whole_->read(index_in_whole(index), input, target);
}

std::string Subset::origin(std::int64_t index) const {
  return whole_->origin(index_in_whole(index));
}

std::string Subset::identity() const {
  Hasher hasher;
  hasher.add("subset");
  hasher.add(whole_->identity());
  hasher.add(offset_);
  hasher.add(size_);
  hasher.add(repeat_);
  return hasher.hex();
}

std::pair<std::int64_t, std::int64_t> Subset::range_in_whole(std::int64_t first,
                                                             std::int64_t last) const {
  const bool repeated = last > size_;
  return {offset_ + (repeated ? 0 : first), offset_ + (repeated ? size_ : last)};
}

void Subset::check(std::int64_t first, std::int64_t last) const {
  const auto [from, to] = range_in_whole(first, last);
  whole_->check(from, to);
}

Extent Subset::extent(std::int64_t first, std::int64_t last) const {
  const auto [from, to] = range_in_whole(first, last);
  return whole_->extent(from, to);
}

}  // namespace dtrain
