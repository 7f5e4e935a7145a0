// The output folder of a run, from before the first rank starts until the last one ended.
#pragma once

#include <filesystem>
#include <string_view>

#include "dtrain/launcher/folder_lock.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {

// Creates the folder and those above it. `what` names it in the ConfigError if that fails.
void create_folder(const std::filesystem::path& folder, std::string_view what);

// Checks that the folder may be used, creates it, clears it under --overwrite, and keeps other runs
// out for its lifetime. Throws ConfigError, and has written nothing then.
class OutputFolder {
 public:
  OutputFolder(const RunFolder& folder, const RunOptions& options);
  int lock_fd() const { return lock_.fd(); }

 private:
  FolderLock lock_;
};

}  // namespace dtrain
