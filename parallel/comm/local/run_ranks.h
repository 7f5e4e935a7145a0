// Runs a function as the ranks of a group, each in a thread: the fabric of tests, and of modes that
// need no processes.
//
//   run_ranks(4, [](Communicator& comm) { barrier(comm); });
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

// Returns when all ranks have returned. If one throws, the others are aborted, and the first error
// is thrown here.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body, CommOptions options = {});

// The same with communicators that each rank's thread makes itself (rank is the argument).
void run_ranks(int ranks, const std::function<std::unique_ptr<Communicator>(int)>& make,
               const std::function<void(Communicator&)>& body);

}  // namespace dtrain
