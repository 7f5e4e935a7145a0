// Numbers and booleans from plain YAML text, under one strict rule for every key: no guessing, no
// truncation. The rules stand in docs/configuration.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::config_internal {

// A value, or why the text is none ("expected a number"; empty if it is one).
template <typename T>
struct Scalar {
  T value{};
  std::string error;
};

// 1e-3, 1E-3, 1.e-3, +1e-3 and .001 are all the same number.
Scalar<double> parse_real(std::string_view text);

// Whole numbers; 1e3 is one, 2.5 is not.
Scalar<std::int64_t> parse_integer(std::string_view text);
Scalar<std::uint64_t> parse_unsigned(std::string_view text);

Scalar<bool> parse_flag(std::string_view text);

// The shortest text that reads back as the same double: 0.001, 1e-08, 25.
std::string real_text(double value);

}  // namespace dtrain::config_internal
