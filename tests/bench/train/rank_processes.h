// Ranks as forked processes that meet in shared memory, like those of the launcher, but running
// code of the benchmark.
//
//   run_processes(2, [](Communicator& comm) { ... });
#pragma once

#include <functional>

#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

// Forks `ranks` processes; rank r runs `body` on the r-th processor that this process may use, and
// on no other, so that each has one core whatever else runs. Returns when all have ended; throws
// if one failed. The caller must have no threads of its own (they do not survive a fork).
void run_processes(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace dtrain
