#include "dtrain/launcher/output_folder.h"

#include <system_error>
#include <unistd.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace fs = std::filesystem;

void create_folder(const fs::path& folder, std::string_view what) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw ConfigError(fmt::format("{}: {} cannot be created: {}; choose another folder", what,
                                  folder.string(), errno_text(error.value())));
  }
}

OutputFolder::OutputFolder(const RunFolder& folder) : folder_(folder) {
  std::error_code ignored;
  // One that cannot be opened is named by the checks.
  if (fs::is_directory(folder.root, ignored) && ::access(folder.root.c_str(), R_OK) == 0) {
    lock_.emplace(folder.root);
  }
  prepare_output(folder, {.resume = true});
}

OutputFolder::OutputFolder(const RunFolder& folder, const RunOptions& options)
    : OutputFolder(folder) {
  prepare(options);
}

void OutputFolder::prepare(const RunOptions& options) {
  if (!lock_) {
    create_folder(folder_.root, "output");
    lock_.emplace(folder_.root);
  }
  prepare_output(folder_, options);
}

}  // namespace dtrain
