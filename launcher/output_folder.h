// The output folder of a run, from before the first rank starts until the last one ended.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "dtrain/launcher/folder_lock.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {

// Creates the folder and those above it. `what` names it in the ConfigError if that fails.
void create_folder(const std::filesystem::path& folder, std::string_view what);

// Keeps other runs out of the folder for its lifetime. Throws ConfigError, and has written nothing
// then.
//
//   OutputFolder output(folder);   // looks at what is there
//   ...                            // checks that may still refuse the run
//   output.prepare(options);       // creates the folder, or clears it under --overwrite
class OutputFolder {
 public:
  // Locks the folder if it exists, and checks that a run could use it. The lock comes first: of a
  // folder in use, checkpoints come and go.
  explicit OutputFolder(const RunFolder& folder);
  // Both at once.
  OutputFolder(const RunFolder& folder, const RunOptions& options);
  // Checks that the options allow it, and makes the folder ready. Once.
  void prepare(const RunOptions& options);
  // After prepare().
  int lock_fd() const { return lock_->fd(); }

 private:
  RunFolder folder_;
  std::optional<FolderLock> lock_;  // empty while there is no folder
};

}  // namespace dtrain
