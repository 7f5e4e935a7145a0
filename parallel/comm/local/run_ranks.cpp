#include "dtrain/parallel/comm/local/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "dtrain/core/base/error_message.h"
#include "dtrain/parallel/comm/local/local_group.h"

namespace dtrain {

void run_ranks(int ranks, const std::function<std::unique_ptr<Communicator>(int)>& make,
               const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    std::unique_ptr<Communicator> comm;
    try {
      comm = make(rank);
      body(*comm);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      {
        // Before the others hear of it, and fail in consequence.
        std::lock_guard lock(mutex);
        if (!first) first = error;
      }
      if (comm) comm->abort(fmt::format("rank {} failed: {}", rank, message_of(error)));
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body, CommOptions options) {
  std::vector<std::unique_ptr<Communicator>> group = make_local_group(ranks, options);
  run_ranks(
      ranks, [&](int rank) { return std::move(group[static_cast<std::size_t>(rank)]); }, body);
}

}  // namespace dtrain
