#include "dtrain/core/base/error.h"

#include <cerrno>
#include <string.h>
#include <sys/resource.h>

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
  const char* const name = strerrorname_np(error_number);
  const char* const description = strerrordesc_np(error_number);
  const std::string text = fmt::format("{} ({})", description ? description : "unknown error",
                                       name ? name : std::to_string(error_number).c_str());
  if (error_number != EMFILE) return text;
  // The one limit that is met in any place and has one remedy.
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format("{}; raise the limit of open files, now {} (ulimit -n)", text, limit.rlim_cur);
}

void detail::check_failed(const char* file, int line, const char* condition,
                          const std::string& message) {
  throw InternalError(
      fmt::format("{}:{}: internal error: {} does not hold: {}", file, line, condition, message));
}

}  // namespace dtrain
