// What the tests of these operators share: random tensors in any image layout, the error of a
// tensor, and a check that bits do not depend on who computes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "dtrain/core/device/allocator.h"
#include "dtrain/core/ops/context.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/core/tensor/tensor.h"
#include "dtrain/tests/reference/layout.h"

namespace dtrain {

// max |a - b| / max |b|; NaN if there is one.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return NAN;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest == 0 ? difference : difference / largest;
}

// Normal numbers that are exact in float, so that both sides compute from the same values.
inline std::vector<double> normal_values(std::int64_t count, std::uint64_t seed, double mean = 0,
                                         double deviation = 1) {
  RandomSequence numbers{RandomKey(seed)};
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) {
    // The sum of twelve uniform numbers is nearly normal.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += numbers.uniform(0, 1);
    value = static_cast<double>(static_cast<float>(mean + deviation * sum));
  }
  return values;
}

// body(place in NHWC order, place in memory) for each element of a tensor. Only images have a
// layout.
template <class Body>
void for_each_place(const Tensor& x, const Body& body) {
  const Shape& shape = x.shape();
  if (x.layout() == Layout{}) {
    for (std::int64_t i = 0; i < x.elements(); ++i) body(std::size_t(i), std::size_t(i));
    return;
  }
  std::size_t plain = 0;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t w = 0; w < shape[2]; ++w)
        for (std::int64_t c = 0; c < shape[3]; ++c)
          body(plain++, std::size_t(reference::image_offset(shape, x.layout(), n, h, w, c)));
}

class DnnTest : public ::testing::Test {
 protected:
  DnnTest() { context_.bind_to_this_thread(); }

  // values: in NHWC order.
  Tensor tensor_of(const std::vector<double>& values, const Shape& shape, Layout layout = {}) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test", layout);
    for_each_place(x, [&](std::size_t plain, std::size_t memory) {
      x.values<float>()[memory] = static_cast<float>(values[plain]);
    });
    return x;
  }

  // A tensor whose every value is wrong until it is written.
  Tensor unwritten(const Shape& shape) {
    const Tensor x = Tensor::empty(shape, DType::f32, allocator_, "test");
    std::ranges::fill(x.values<float>(), NAN);
    return x;
  }

  Allocator allocator_{"test"};
  OpContext context_{allocator_, 1};
  std::vector<Tensor> kept_;  // what wrapped tensors view
};

// In NHWC order.
inline std::vector<double> values_of(const Tensor& x) {
  std::vector<double> values(std::size_t(x.elements()));
  for_each_place(x, [&](std::size_t plain, std::size_t memory) {
    values[plain] = static_cast<double>(x.values<float>()[memory]);
  });
  return values;
}

using Bytes = std::vector<std::byte>;

inline void append_bytes(Bytes& bytes, const Tensor& x) {
  const auto* data = static_cast<const std::byte*>(x.raw());
  bytes.insert(bytes.end(), data, data + x.bytes());
}

// `compute` returns bytes of what it computed. They must be the same twice in one context, in a
// fresh one, and in four threads at once.
inline void expect_same_bits_everywhere(const std::function<Bytes(OpContext&)>& compute) {
  Allocator allocator("test");
  OpContext context(allocator, 1);
  context.bind_to_this_thread();
  const Bytes first = compute(context);
  EXPECT_TRUE(compute(context) == first) << "the second call differs";
  OpContext another(allocator, 1);
  EXPECT_TRUE(compute(another) == first) << "another context differs";
  std::vector<Bytes> results(4);
  {
    std::vector<std::jthread> lanes;
    for (Bytes& result : results) {
      lanes.emplace_back([&] {
        OpContext lane(allocator, 1);
        lane.bind_to_this_thread();
        for (int i = 0; i < 3; ++i) result = compute(lane);
      });
    }
  }
  for (const Bytes& result : results) EXPECT_TRUE(result == first) << "a lane differs";
}

}  // namespace dtrain
