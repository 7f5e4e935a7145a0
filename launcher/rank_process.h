// What runs in a process that the launcher started as a rank.
#pragma once

#include "dtrain/parallel/train/registry.h"

namespace dtrain {

// Trains or evaluates as the job says that the launcher left in DTRAIN_JOB_FD. An error is reported
// to the launcher and ends the process at once, without the clean-up that might wait for ranks that
// no longer answer. Returns the exit code of a run that ended well or was stopped.
int run_rank(const Registry& registry);

}  // namespace dtrain
