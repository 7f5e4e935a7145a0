// Tells whether other processes have ended, by descriptors that no other process can take over.
#pragma once

#include <vector>

#include "dtrain/core/base/files.h"

namespace dtrain {

class ProcessWatch {
 public:
  // pids[i]: a process that lives, or 0 for one that need not be watched.
  explicit ProcessWatch(const std::vector<int>& pids);
  // Whether process i has ended, also if nobody has waited for it yet. False if not known.
  bool ended(int i) const;

 private:
  std::vector<UniqueFd> descriptors_;
};

}  // namespace dtrain
