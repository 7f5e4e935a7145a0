// Runs a test body over every transport between ranks of one process: threads that share memory
// outright, and threads that map the segments of the shm transport each on its own.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "dtrain/parallel/comm/local/run_ranks.h"
#include "dtrain/parallel/comm/shm/shm_communicator.h"
#include "dtrain/parallel/store/store.h"

namespace dtrain {

inline void run_group(const std::string& transport, int ranks,
                      const std::function<void(Communicator&)>& body, CommOptions options = {}) {
  if (transport == "local") return run_ranks(ranks, body, options);
  const auto store = make_local_store();
  run_ranks(
      ranks, [&](int rank) { return make_shm_communicator(*store, rank, ranks, options); }, body);
}

// What run_group throws, or an empty text.
template <typename E>
std::string error_of_group(const std::string& transport, int ranks,
                           const std::function<void(Communicator&)>& body,
                           CommOptions options = {}) {
  try {
    run_group(transport, ranks, body, options);
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace dtrain
