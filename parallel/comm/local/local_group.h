// A group whose ranks are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

// One communicator per rank, each for a thread of its own. Nobody waits here; collectives do.
std::vector<std::unique_ptr<Communicator>> make_local_group(int ranks, CommOptions options = {});

}  // namespace dtrain
