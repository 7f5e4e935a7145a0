// What the tests of data sets share: files made by the test, and the text of an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/data/dataset.h"

namespace dtrain::test {

// Text of the error of that type which `action` throws.
template <typename Expected = DataError, typename Action>
std::string error_text(Action action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// A folder of the test's own files. {} in an expected text stands for a path in it.
class DataFiles : public testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }
  std::string write(std::string_view name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

 private:
  TemporaryDirectory folder_{"dtrain-data-test"};
};

inline std::string gzip(std::string_view plain) {
  z_stream stream{};
  ::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(::deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

// The header of an IDX file: magic number and sizes.
inline std::string idx_header(std::initializer_list<std::uint32_t> numbers) {
  std::string header;
  for (const std::uint32_t number : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      header.push_back(static_cast<char>(number >> shift & 0xFF));
    }
  }
  return header;
}

// One sample as values.
struct Sample {
  std::vector<float> input;
  std::vector<float> target;  // of regression
  std::int64_t label = 0;     // of classes
  friend bool operator==(const Sample&, const Sample&) = default;
};

inline Sample read_sample(const Dataset& data, std::int64_t index) {
  const SampleSpec& spec = data.spec();
  Sample sample;
  sample.input.resize(static_cast<std::size_t>(spec.input.shape.elements()));
  const auto input = std::as_writable_bytes(std::span(sample.input));
  if (spec.target.dtype == DType::i64) {
    data.read(index, input, std::as_writable_bytes(std::span(&sample.label, 1)));
  } else {
    sample.target.resize(static_cast<std::size_t>(spec.target.shape.elements()));
    data.read(index, input, std::as_writable_bytes(std::span(sample.target)));
  }
  return sample;
}

}  // namespace dtrain::test
