// Reads the value files that stand beside this header, and makes the inputs that belong to them:
// files.py is the other side.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dtrain/core/tensor/shape.h"

namespace dtrain::parity {

inline std::string path_of(const std::string& name) {
  return std::string(DTRAIN_SOURCE_DIR) + "/tests/parity/" + name;
}

inline nlohmann::json read(const std::string& name) {
  std::ifstream file(path_of(name));
  EXPECT_TRUE(file.good()) << path_of(name);
  return nlohmann::json::parse(file);
}

// All numbers of nested lists, in order.
inline std::vector<float> floats(const nlohmann::json& values) {
  if (values.is_number()) return {values.get<float>()};
  std::vector<float> result;
  for (const nlohmann::json& value : values) {
    const std::vector<float> inner = floats(value);
    result.insert(result.end(), inner.begin(), inner.end());
  }
  return result;
}

inline Shape shape_of(const nlohmann::json& sizes) {
  const auto list = sizes.get<std::vector<std::int64_t>>();
  return Shape(std::span<const std::int64_t>(list));
}

// A uniform number in [-1, 1), a multiple of 2^-23: a function of (seed, index).
inline float hashed(std::uint32_t index, std::uint32_t seed) {
  std::uint32_t x = index * 0x9E3779B1U + seed * 0x85EBCA6BU;
  x ^= x >> 16;
  x *= 0x21F0AAADU;
  x ^= x >> 15;
  x *= 0x735A2D97U;
  x ^= x >> 15;
  return static_cast<float>(static_cast<std::int32_t>(x >> 8) - (1 << 23)) * 0x1p-23F;
}

inline std::vector<float> hashed_values(std::int64_t count, std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = hashed(static_cast<std::uint32_t>(i), seed);
  }
  return values;
}

// In [0, below), below <= 2^20.
inline std::int64_t hashed_integer(std::uint32_t index, std::uint32_t seed, std::int64_t below) {
  const double uniform = (static_cast<double>(hashed(index, seed)) + 1) / 2;
  return static_cast<std::int64_t>(std::floor(uniform * static_cast<double>(below)));
}

// Bytes that base64 text stands for; `text` is whole groups of four.
inline std::vector<std::uint8_t> base64(const std::string& text) {
  static constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<std::uint8_t>(bits >> count));
    }
  }
  return bytes;
}

// A tensor of a value file, of which large ones hold every n-th element.
struct Packed {
  explicit Packed(const nlohmann::json& json)
      : shape(shape_of(json.at("shape"))), every(json.at("every")), largest(json.at("largest")) {
    const std::vector<std::uint8_t> bytes = base64(json.at("values"));
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    EXPECT_EQ(values.size(), (static_cast<std::size_t>(shape.elements()) + every - 1) / every);
  }

  Shape shape;
  std::size_t every;
  double largest;  // |value| of all elements
  std::vector<float> values;
};

// Of a tensor in plain order against its expected values.
struct TensorError {
  double largest = 0;  // max|a - b| / max|b|
  double rms = 0;      // rms(a - b) / rms(b)
};

inline TensorError error_of(const std::vector<float>& actual, const Packed& expected) {
  EXPECT_EQ(actual.size(), static_cast<std::size_t>(expected.shape.elements()));
  double largest = 0, squares = 0, expected_squares = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double a = actual.at(i * expected.every), b = expected.values[i];
    if (std::isnan(a) || std::isnan(b)) return {NAN, NAN};
    largest = std::max(largest, std::abs(a - b));
    squares += (a - b) * (a - b);
    expected_squares += b * b;
  }
  return {largest / (expected.largest == 0 ? 1 : expected.largest),
          std::sqrt(squares / (expected_squares == 0 ? 1 : expected_squares))};
}

}  // namespace dtrain::parity
