// A data set: samples by index, each a fixed-size input and target. Reading sample i is a pure
// function of i, from any thread, so that the order of a run never depends on who reads.
//
//   class Squares : public Dataset {
//    public:
//     std::int64_t size() const override { return 100; }
//     const SampleSpec& spec() const override { return spec_; }
//     void read(std::int64_t i, std::span<std::byte> input, std::span<std::byte> target)
//         const override { ... }
//     ...
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dtrain/core/tensor/dtype.h"
#include "dtrain/core/tensor/shape.h"

namespace dtrain {

// One sample's input or target. shape: without the batch axis; images are [H, W, C].
struct FieldSpec {
  DType dtype = DType::f32;
  Shape shape;
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
};

struct SampleSpec {
  FieldSpec input;           // f32; token ids: i32 [T]
  FieldSpec target;          // class labels: i64 of shape [], of tokens [T]; regression: f32
  std::int64_t classes = 0;  // number of classes of label targets, 0 for others
  // Mean bytes of text that a target stands for; 0 if unknown, or not text.
  double bytes_per_target = 0;
};

// Samples as windows over a row of units: sample i has units [i * stride, i * stride + length).
//
// Note [Shares of windows]: `size: 90%` and `offset: 90%` cut the units, not the samples, and leave
// out a window that the cut goes through. So the two parts share no unit, also where windows
// overlap, or where both parts have strides of their own.
struct Windows {
  std::int64_t units = 0;
  std::int64_t length = 1;
  std::int64_t stride = 1;

  std::int64_t first_unit(std::int64_t sample) const { return sample * stride; }
  // The first sample that begins at `unit` or behind it.
  std::int64_t sample_from(std::int64_t unit) const { return (unit + stride - 1) / stride; }
  // Samples that end at `unit` or before it.
  std::int64_t samples_before(std::int64_t unit) const {
    return unit < length ? 0 : (unit - length) / stride + 1;
  }
};

// What samples are made of: units [first, last) of a content. Two data sets have samples in common
// if their contents are the same and their units meet.
struct Extent {
  std::string content;  // digest
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// size() of data sets that are made rather than stored: a recipe says how many samples to take.
inline constexpr std::int64_t endless = std::int64_t{1} << 48;

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Samples, or `endless`.
  virtual std::int64_t size() const = 0;
  virtual const SampleSpec& spec() const = 0;
  // Writes sample `index` into `input` (spec().input.bytes()) and `target`. Throws DataError that
  // names file and record for a sample that cannot be used.
  virtual void read(std::int64_t index, std::span<std::byte> input,
                    std::span<std::byte> target) const = 0;
  // Where the sample comes from, for errors and timeouts: "points.csv: row 17".
  virtual std::string origin(std::int64_t index) const = 0;
  // Digest of what makes the content (sizes, a hash of the files' heads, parameters); ranks compare
  // it before step 1, and a resumed run with its checkpoint.
  virtual std::string identity() const = 0;
  // Throws the DataError of the first sample in [first, last) that is already known to be bad, so
  // that a run that stops at bad samples need not start. Reads nothing.
  virtual void check(std::int64_t /*first*/, std::int64_t /*last*/) const {}
  // How samples lie in the content. Most have a unit each.
  virtual Windows windows() const { return {.units = size()}; }
  // Of samples [first, last), which are not none.
  virtual Extent extent(std::int64_t first, std::int64_t last) const {
    return {identity(), first, last};
  }
};

}  // namespace dtrain
