#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/parallel/train/train.h"

// Note [Whose file it is]
//
// An output folder may be any folder, also one in which a user keeps files of the same names. So a
// run writes over a file, and --overwrite removes one, only if its content is what a run writes:
// a resolved recipe, events, a summary, a checkpoint. Anything else of these names is refused.

namespace dtrain {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// A rank's log, "rank-3.log".
bool is_rank_log(const std::string& name) {
  return name.starts_with("rank-") && name.ends_with(".log") &&
         name.find_first_not_of("0123456789", 5) == name.size() - 4;
}

// Of checkpoints/: "step-00000003", or "step-00000003.tmp" while it is written.
bool is_checkpoint_name(const fs::path& path) {
  const fs::path name = path.extension() == ".tmp" ? path.stem() : path.filename();
  return step_of_checkpoint_name(name.native()).has_value();
}

bool has_entry(const fs::path& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

// With its newline, so that only an empty file has an empty one.
std::string first_line(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(4096, '\0');
  const ssize_t size = fd ? ::read(fd.get(), text.data(), text.size()) : -1;
  if (size < 0) {
    throw ConfigError(
        fmt::format("output: {} cannot be read: {}", path.string(), errno_text(errno)));
  }
  text.resize(static_cast<std::size_t>(size));
  const std::size_t end = text.find('\n');
  return end == text.npos ? text : text.substr(0, end + 1);
}

// Each of these also takes a file that is empty or cut short: a full disk leaves such.
bool is_run_recipe(const fs::path& path) {
  const std::string line = first_line(path);
  return line.empty() || (line.starts_with("# ") && line.find(", resolved: ") != line.npos);
}

bool is_run_log(const fs::path& path) {
  const std::string line = first_line(path);
  if (line.empty()) return true;
  const json event = json::parse(line, nullptr, false);
  return event.is_object() ? event.contains("event") : line.starts_with("{\"event\":");
}

bool is_run_summary(const fs::path& path) {
  const std::string text = read_file(path, 16 << 20);
  if (text.empty()) return true;
  const json summary = json::parse(text, nullptr, false);
  return summary.is_object() && summary.contains("status");
}

[[noreturn]] void refuse(const fs::path& path, std::string_view why) {
  throw ConfigError(
      fmt::format("output: {} {}: move it, or choose another output folder", path.string(), why));
}

// Refuses a file that a run would replace or append to but cannot, or must not.
void check_file(const fs::path& path, bool (*ours)(const fs::path&)) {
  if (!has_entry(path)) return;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path, "is in the way: it is not a file");
  if (ours != nullptr && !ours(path)) refuse(path, "was not written by a run of dtrain");
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) {
    throw ConfigError(fmt::format(
        "output: {} cannot be written: {}; change its permissions, or choose another output folder",
        path.string(), errno_text(errno)));
  }
}

void check_writable(const fs::path& folder) {
  if (::faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0) return;
  throw ConfigError(fmt::format(
      "output: {} cannot be written: {}; change its permissions, or choose another output folder",
      folder.string(), errno_text(errno)));
}

void check_content(const RunFolder& folder) {
  check_writable(folder.root);
  check_file(folder.config(), is_run_recipe);
  check_file(folder.log(), is_run_log);
  check_file(folder.summary(), is_run_summary);
  for (const auto& entry : fs::directory_iterator(folder.root)) {
    if (is_rank_log(entry.path().filename().string())) check_file(entry.path(), nullptr);
  }
  if (!has_entry(folder.checkpoints())) return;
  if (!fs::is_directory(folder.checkpoints())) {
    refuse(folder.checkpoints(), "is in the way: it is not a folder");
  }
  check_writable(folder.checkpoints());
  for (const auto& entry : fs::directory_iterator(folder.checkpoints())) {
    if (is_checkpoint_name(entry.path()) && !is_checkpoint_folder(entry.path())) {
      refuse(entry.path(), "is no checkpoint of dtrain");
    }
  }
}

// What marks a folder as one that holds a run; check_content has passed.
bool holds_run(const RunFolder& folder) {
  return has_entry(folder.log()) || has_entry(folder.summary()) ||
         !list_checkpoints(folder.checkpoints()).empty();
}

// The recipe stays, to be replaced in one step: it may be the one that the new run was started
// with.
void remove_run(const RunFolder& folder) {
  std::vector<fs::path> paths = {folder.log(), folder.summary()};
  for (const auto& entry : fs::directory_iterator(folder.root)) {
    if (is_rank_log(entry.path().filename().string())) paths.push_back(entry.path());
  }
  if (has_entry(folder.checkpoints())) {
    for (const auto& entry : fs::directory_iterator(folder.checkpoints())) {
      if (is_checkpoint_name(entry.path())) paths.push_back(entry.path());
    }
  }
  for (const fs::path& path : paths) fs::remove_all(path);
}

// Refuses a path that cannot be or become a folder; false if there is none yet.
bool folder_exists(const fs::path& root) {
  std::error_code error;
  for (fs::path path = root; !path.empty(); path = path.parent_path()) {
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      // ENOTDIR counts as not found too: then a parent is the one to name.
      if (path == path.parent_path()) return false;
      continue;
    }
    if (status.type() == fs::file_type::none) {
      throw ConfigError(fmt::format("output: {} cannot be used: {}; choose another output folder",
                                    root.string(), errno_text(error.value())));
    }
    if (!fs::is_directory(status)) {
      throw ConfigError(
          path == root
              ? fmt::format("output: {} is not a folder; choose another one", root.string())
              : fmt::format("output: {} cannot be made: {} is not a folder; choose "
                            "another one",
                            root.string(), path.string()));
    }
    return path == root;
  }
  return false;
}

}  // namespace

bool run_writes(const RunFolder& folder, const fs::path& file) {
  std::error_code ignored;
  const fs::path inside =
      fs::weakly_canonical(fs::absolute(file), ignored)
          .lexically_relative(fs::weakly_canonical(fs::absolute(folder.root), ignored));
  if (inside.empty() || *inside.begin() == "..") return false;
  const std::string first = inside.begin()->string();
  if (first == "checkpoints") {
    const auto second = std::next(inside.begin());
    return second == inside.end() || is_checkpoint_name(*second);
  }
  if (std::next(inside.begin()) != inside.end()) return false;
  // The stored recipe of a run may be given: reading it and writing it again leaves what it says.
  if (first == "config.yaml") return !is_run_recipe(folder.config());
  return first == "log.jsonl" || first == "summary.json" || is_rank_log(first);
}

void prepare_output(const RunFolder& folder, const RunOptions& options) {
  try {
    if (!folder_exists(folder.root)) return;
    check_content(folder);
    if (!holds_run(folder)) return;
    if (options.overwrite) {
      remove_run(folder);
    } else if (!options.resume && options.resume_from.empty()) {
      const auto steps = list_checkpoints(folder.checkpoints());
      throw ConfigError(fmt::format(
          "output: {} holds a run{}; use --resume to go on with it, --overwrite to begin anew, or "
          "another output folder",
          folder.root.string(), steps.empty() ? "" : fmt::format(" at step {}", steps.back())));
    }
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(
        fmt::format("output: {}: {}; change its permissions, or choose another output folder",
                    error.path1().empty() ? folder.root.string() : error.path1().string(),
                    errno_text(error.code().value())));
  } catch (const std::system_error& error) {
    throw ConfigError(fmt::format("output: {}; choose another output folder", error.what()));
  }
}

}  // namespace dtrain
