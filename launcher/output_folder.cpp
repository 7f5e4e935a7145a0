#include "dtrain/launcher/output_folder.h"

#include <system_error>

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

namespace {

// In an order in which a folder that is refused stays as it was, and one that another run uses is
// never cleared.
FolderLock lock_and_prepare(const RunFolder& folder, const RunOptions& options) {
  if (!fs::is_directory(folder.root)) {
    prepare_output(folder, options);
    create_folder(folder.root, "output");
  }
  FolderLock lock(folder.root);
  prepare_output(folder, options);
  return lock;
}

}  // namespace

OutputFolder::OutputFolder(const RunFolder& folder, const RunOptions& options)
    : lock_(lock_and_prepare(folder, options)) {}

}  // namespace dtrain
