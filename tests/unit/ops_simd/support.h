// What the tests of the vector operators share: tensors of random numbers, error of a tensor,
// and comparison of bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/device/allocator.h"
#include "dtrain/core/ops/context.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/core/tensor/tensor.h"
#include "dtrain/tests/unit/ops_simd/instruction_sets.h"

namespace dtrain {

class OpsTest : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, double low, double high, std::uint64_t seed = 1,
                Layout layout = {}) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test", layout);
    RandomSequence numbers{RandomKey(seed)};
    for (float& value : x.values<float>()) value = static_cast<float>(numbers.uniform(low, high));
    return x;
  }

  Tensor of(const std::vector<float>& values, const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test");
    std::copy(values.begin(), values.end(), x.values<float>().begin());
    return x;
  }

  Tensor labels(const std::vector<std::int64_t>& values) {
    const Tensor x =
        Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::i64, allocator_, "test");
    std::copy(values.begin(), values.end(), x.values<std::int64_t>().begin());
    return x;
  }

  Allocator allocator_{"test"};
  OpContext context_{allocator_, 1};
};

inline std::vector<double> doubles(const Tensor& x) {
  const std::span<const float> values = x.values<float>();
  return {values.begin(), values.end()};
}

// max |a - b| / max |b|.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    if (std::isnan(a[i]) || std::isnan(b[i])) return NAN;
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest == 0 ? difference : difference / largest;
}

inline std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

inline std::vector<std::uint32_t> bits(const Tensor& x) {
  return bits(x.values<float>());
}

}  // namespace dtrain
