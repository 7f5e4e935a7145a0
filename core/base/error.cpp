#include "dtrain/core/base/error.h"

#include <string.h>

namespace dtrain {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::config:
      return "config";
    case ErrorKind::data:
      return "data";
    case ErrorKind::comm:
      return "comm";
    case ErrorKind::device:
      return "device";
    case ErrorKind::checkpoint:
      return "checkpoint";
    case ErrorKind::nonfinite:
      return "nonfinite";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

namespace {

std::string place_of(const std::string& path, std::int64_t record) {
  return record < 0 ? path : fmt::format("{}: record {}", path, record);
}

}  // namespace

DataError::DataError(const std::string& path, std::int64_t record, const std::string& message)
    : Error(ErrorKind::data, place_of(path, record) + ": " + message),
      path_(path),
      record_(record) {}

std::string errno_text(int error_number) {
  const char* name = strerrorname_np(error_number);
  return fmt::format(
      "{} ({})", strerrordesc_np(error_number) ? strerrordesc_np(error_number) : "unknown error",
      name ? name : std::to_string(error_number).c_str());
}

void detail::check_failed(const char* file, int line, const char* condition,
                          const std::string& message) {
  throw InternalError(
      fmt::format("{}:{}: internal error: {} does not hold: {}", file, line, condition, message));
}

}  // namespace dtrain
