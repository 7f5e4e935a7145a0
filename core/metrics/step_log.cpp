#include "dtrain/core/metrics/step_log.h"

#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/base/log.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

bool all_finite(const Json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  if (!value.is_structured()) return true;
  for (const Json& item : value) {
    if (!all_finite(item)) return false;
  }
  return true;
}

// JSON has no NaN; a reader must still tell it from a missing value.
void spell_non_finite(Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number)) {
      value = "NaN";
    } else if (std::isinf(number)) {
      value = number > 0 ? "Infinity" : "-Infinity";
    }
  } else if (value.is_structured()) {
    for (Json& item : value) spell_non_finite(item);
  }
}

std::string to_line(const Json& event) {
  const auto dump = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  if (all_finite(event)) return dump(event);
  Json spelled = event;
  spell_non_finite(spelled);
  return dump(spelled);
}

// Decides line by line what a log keeps on resume at `keep_through_step`: complete lines of steps
// up to it. A line without a step goes with the one before it.
class LineFilter {
 public:
  explicit LineFilter(std::int64_t keep_through_step) : keep_through_step_(keep_through_step) {}

  bool keep(const std::string& line) {
    const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) return false;
    const auto step = event.find("step");
    if (step != event.end() && step->is_number()) {
      keeping_ = step->get<double>() <= static_cast<double>(keep_through_step_);
    }
    return keeping_;
  }

 private:
  std::int64_t keep_through_step_;
  bool keeping_ = true;
};

[[noreturn]] void throw_errno(const fs::path& path, const char* what) {
  throw std::system_error(errno, std::generic_category(), path.string() + ": " + what);
}

// Rewrites the log beside itself and renames, so that a crash leaves the one or the other.
void cut_later_steps(const fs::path& path, std::int64_t keep_through_step) {
  std::ifstream old(path);
  if (!old) return;  // nothing to cut
  const fs::path temporary = path.string() + ".tmp";
  try {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) throw_errno(temporary, "cannot create");
    LineFilter filter(keep_through_step);
    std::string kept;
    const auto flush = [&] {
      write_all(fd.get(), std::as_bytes(std::span(kept)), temporary);
      kept.clear();
    };
    for (std::string line; std::getline(old, line);) {
      if (old.eof()) break;  // no newline: a killed run was in the middle of it
      if (!filter.keep(line)) continue;
      kept += line;
      kept += '\n';
      if (kept.size() > (1u << 20)) flush();
    }
    flush();
    if (::fsync(fd.get()) != 0) throw_errno(temporary, "cannot write");
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_errno(path, "cannot replace");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

struct StepLog::Impl {
  fs::path path;
  UniqueFd fd;
  bool warned = false;

  void warn(std::string_view why) {
    if (std::exchange(warned, true)) return;
    spdlog::warn("{}: {}; training goes on, the log has gaps", path.string(), why);
  }

  void append(std::string_view line) {
    if (!fd) return;
    // One write per line: with O_APPEND a line is whole or absent, also if the process is killed.
    ssize_t written = 0;
    do {
      written = ::write(fd.get(), line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(line.size())) return;
    const int error_number = written < 0 ? errno : ENOSPC;
    struct stat status;
    if (written > 0 && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode)) {
      // A piece of a line would spoil the next one too.
      if (::ftruncate(fd.get(), status.st_size - written) != 0) fd.reset();
    }
    warn("cannot write: " + errno_text(error_number));
  }
};

StepLog::StepLog(const fs::path& path, std::int64_t keep_through_step)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  try {
    if (keep_through_step >= 0) cut_later_steps(path, keep_through_step);
  } catch (const std::exception& error) {
    impl_->warn(error.what());
  }
  const int start = keep_through_step < 0 ? O_TRUNC : 0;
  impl_->fd.reset(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | start, 0666));
  if (!impl_->fd) impl_->warn("cannot open: " + errno_text(errno));
}

StepLog::~StepLog() = default;

void StepLog::write(const nlohmann::ordered_json& event) {
  try {
    impl_->append(to_line(event));
  } catch (const std::exception& error) {
    impl_->warn(error.what());
  }
}

}  // namespace dtrain
