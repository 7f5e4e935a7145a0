// Errors of dtrain: one exception type per kind of cause, so that a caller can choose an exit code,
// and DTRAIN_CHECK for what only a bug in dtrain can break.
//
// An error names what was wrong, where, the value found and the remedy, in one line:
//
//   throw DataError("/data/train.csv", 17, "column 'x': 'abc' is not a number");
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace dtrain {

enum class ErrorKind { config, data, comm, device, checkpoint, nonfinite, internal };

// "config", "data", ...: as it stands in the failure report.
std::string_view to_string(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// A recipe or a command line that cannot run. Exit code 2 when found before any rank starts.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(ErrorKind::config, message) {}
};

// Input data that cannot be used. Always names the file; `record` is the row, sample or byte it
// happened at, negative where the file as a whole is meant.
class DataError : public Error {
 public:
  DataError(const std::string& path, std::int64_t record, const std::string& message);
  const std::string& path() const { return path_; }
  std::int64_t record() const { return record_; }

 private:
  std::string path_;
  std::int64_t record_;
};

// A peer, a link or a deadline. `blamed_rank` is the rank that others waited for, -1 if unknown.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message, int blamed_rank = -1)
      : Error(ErrorKind::comm, message), blamed_rank_(blamed_rank) {}
  int blamed_rank() const { return blamed_rank_; }

 private:
  int blamed_rank_;
};

// A device that is missing, full or broken.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ErrorKind::device, message) {}
};

// A checkpoint or weight file that cannot be written, read or trusted. Names the path.
class CheckpointError : public Error {
 public:
  CheckpointError(const std::string& path, const std::string& message)
      : Error(ErrorKind::checkpoint, path + ": " + message) {}
};

// A loss or gradient that is not finite, under `on_nonfinite: stop`.
class NonFiniteError : public Error {
 public:
  explicit NonFiniteError(const std::string& message) : Error(ErrorKind::nonfinite, message) {}
};

// A broken invariant: a bug in dtrain or in a program that uses it, never bad input.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ErrorKind::internal, message) {}
};

// Text of an errno value: "No space left on device (ENOSPC)".
std::string errno_text(int error_number);

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}

}  // namespace dtrain

// DTRAIN_CHECK(a == b, "size {} of {}", n, name): throws InternalError with file and line.
#define DTRAIN_CHECK(condition, ...)                                                              \
  do {                                                                                            \
    if (!(condition)) [[unlikely]] {                                                              \
      ::dtrain::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)
