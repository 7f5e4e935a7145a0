// Keeps a second run out of an output folder.
#pragma once

#include <filesystem>

#include "dtrain/core/base/files.h"

namespace dtrain {

// A lock on an existing folder. The system releases it when this process and all that inherited
// fd() are gone, however they ended, so no lock is ever stale.
class FolderLock {
 public:
  // Throws ConfigError naming the folder if another run holds it, and does not end in a moment.
  explicit FolderLock(const std::filesystem::path& folder);
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace dtrain
