#include <system_error>

#include "dtrain/core/base/error.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

// What marks a folder as one that holds a run.
bool holds_run(const RunFolder& folder) {
  return fs::exists(folder.log()) || fs::exists(folder.summary()) ||
         !list_checkpoints(folder.checkpoints()).empty();
}

// A rank's log, "rank-3.log".
bool is_rank_log(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("rank-") && name.ends_with(".log") &&
         name.find_first_not_of("0123456789", 5) == name.size() - 4;
}

void remove_run(const RunFolder& folder) {
  std::vector<fs::path> paths = {folder.log(), folder.summary(), folder.config()};
  for (const auto& entry : fs::directory_iterator(folder.root)) {
    if (is_rank_log(entry.path())) paths.push_back(entry.path());
  }
  if (fs::is_directory(folder.checkpoints())) {
    for (const auto& entry : fs::directory_iterator(folder.checkpoints())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-")) paths.push_back(entry.path());
    }
  }
  for (const fs::path& path : paths) fs::remove_all(path);
}

}  // namespace

void prepare_output(const RunFolder& folder, const RunOptions& options) {
  try {
    if (fs::exists(folder.root) && !fs::is_directory(folder.root)) {
      throw ConfigError(
          fmt::format("output: {} is not a folder; choose another one", folder.root.string()));
    }
    if (!fs::exists(folder.root) || !holds_run(folder)) return;
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
    throw ConfigError(fmt::format("output: {}", error.what()));
  }
}

}  // namespace dtrain
