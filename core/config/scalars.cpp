#include "dtrain/core/config/scalars.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <type_traits>

#include <fmt/format.h>

#include "dtrain/core/config/problems.h"

namespace dtrain::config_internal {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t digits_at(std::string_view text, std::size_t begin) {
  std::size_t i = begin;
  while (i < text.size() && is_digit(text[i])) ++i;
  return i - begin;
}

// What the characters of a number are.
struct Shape {
  bool number = false;   // [+-] digits [. digits] [e [+-] digits], at least one digit
  bool integer = false;  // and neither point nor exponent
  std::string error;     // why not, if it looks like one
};

Shape shape_of(std::string_view text, std::string_view expected) {
  const auto no = [&](std::string_view why) {
    return Shape{false, false,
                 why.empty()
                     ? fmt::format("expected {}, found {}", expected, shown(text))
                     : fmt::format("expected {}, found {}: {}", expected, shown(text), why)};
  };
  std::string_view rest = text;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) rest.remove_prefix(1);

  std::string lower(rest);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower == ".inf" || lower == ".nan" || lower == "inf" || lower == "nan" ||
      lower == "infinity") {
    return no("it must be finite");
  }
  if (lower.starts_with("0x")) return no("write it as a decimal number, not hexadecimal");
  if (lower.starts_with("0o")) return no("write it as a decimal number, not octal");
  if (lower.starts_with("0b")) return no("write it as a decimal number, not binary");

  const std::size_t whole = digits_at(rest, 0);
  std::size_t i = whole;
  std::size_t fraction = 0;
  bool point = false;
  if (i < rest.size() && rest[i] == '.') {
    point = true;
    fraction = digits_at(rest, i + 1);
    i += 1 + fraction;
  }
  if (whole + fraction == 0) return no("");
  bool exponent = false;
  if (i < rest.size() && (rest[i] == 'e' || rest[i] == 'E')) {
    exponent = true;
    ++i;
    if (i < rest.size() && (rest[i] == '+' || rest[i] == '-')) ++i;
    const std::size_t digits = digits_at(rest, i);
    if (digits == 0) return no("the exponent has no digits");
    i += digits;
  }
  if (i < rest.size()) {
    const std::string_view tail = rest.substr(i + 1);
    const bool digits_follow = !tail.empty() && digits_at(tail, 0) > 0;
    if (rest[i] == ',' && digits_follow) {
      return no("write a point, not a comma, before the fraction, and nothing between thousands");
    }
    if (rest[i] == ':' && digits_follow) {
      return no("some readers of YAML take that as a number to base 60; write one plain number");
    }
    if (rest[i] == '_') return no("leave the underscores out");
    if (rest[i] == '%') return no("a share is not possible here");
    return no("");
  }
  if (whole > 1 && rest[0] == '0') {
    const std::size_t first = std::min(rest.find_first_not_of('0'), whole - 1);
    return no(
        fmt::format("a leading zero is ambiguous: some readers of YAML take it as octal; "
                    "write {}",
                    rest.substr(first)));
  }
  return {true, !point && !exponent, ""};
}

std::string_view without_plus(std::string_view text) {
  return text.starts_with('+') ? text.substr(1) : text;
}

Scalar<double> real_value(std::string_view text, std::string_view expected) {
  const Shape shape = shape_of(text, expected);
  if (!shape.number) return {0, shape.error};
  const std::string_view plain = without_plus(text);
  double value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size() || !std::isfinite(value)) {
    return {0, fmt::format("expected {}, found {}: beyond the range of a 64-bit float", expected,
                           shown(text))};
  }
  return {value, ""};
}

template <typename T>
Scalar<T> whole_value(std::string_view text) {
  constexpr std::string_view kExpected = "a whole number";
  const Shape shape = shape_of(text, kExpected);
  if (!shape.number) return {0, shape.error};
  const auto out_of_range = [&] {
    return Scalar<T>{
        0, fmt::format("expected {} from {} to {}, found {}", kExpected,
                       std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), shown(text))};
  };
  if (shape.integer) {
    const std::string_view plain = without_plus(text);
    T value = 0;
    const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
    if (error != std::errc() || end != plain.data() + plain.size()) return out_of_range();
    return {value, ""};
  }
  const Scalar<double> real = real_value(text, kExpected);
  if (!real.error.empty()) return {0, real.error};
  if (real.value != std::floor(real.value)) {
    return {0, fmt::format("expected {}, found {}", kExpected, shown(text))};
  }
  // Beyond 2^53 a double no longer tells neighbours apart.
  constexpr double kExact = 9007199254740992.0;
  if (std::abs(real.value) > kExact || (std::is_unsigned_v<T> && real.value < 0)) {
    return out_of_range();
  }
  return {static_cast<T>(real.value), ""};
}

}  // namespace

Scalar<double> parse_real(std::string_view text) {
  return real_value(text, "a number");
}
Scalar<std::int64_t> parse_integer(std::string_view text) {
  return whole_value<std::int64_t>(text);
}
Scalar<std::uint64_t> parse_unsigned(std::string_view text) {
  return whole_value<std::uint64_t>(text);
}

Scalar<bool> parse_flag(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return {true, ""};
  if (text == "false" || text == "False" || text == "FALSE") return {false, ""};
  return {false, fmt::format("expected true or false, found {}", shown(text))};
}

std::string real_text(double value) {
  return fmt::format("{}", value);
}

}  // namespace dtrain::config_internal
