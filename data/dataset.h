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
  FieldSpec input;           // f32 for every kind so far
  FieldSpec target;          // class labels: i64 of shape [] ; regression: f32
  std::int64_t classes = 0;  // number of classes of label targets, 0 for others
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
};

}  // namespace dtrain
