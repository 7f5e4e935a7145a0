#include "dtrain/parallel/train/vote.h"

#include <cstdint>
#include <string>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/error_message.h"
#include "dtrain/parallel/train/gather.h"

namespace dtrain {

namespace {

struct WireBallot {
  std::int32_t failed = 0;  // 1: has an error, 2: has a consequence of another's
  std::int32_t signal = 0;
  std::int32_t out_of_time = 0;
  std::int32_t nonfinite = 0;
};

}  // namespace

Ballot vote(Communicator& comm, const Ballot& mine, std::exception_ptr error) {
  const auto ballots = gather(comm, WireBallot{.failed = !error             ? 0
                                                         : mine.consequence ? 2
                                                                            : 1,
                                               .signal = mine.signal,
                                               .out_of_time = mine.out_of_time,
                                               .nonfinite = mine.nonfinite});
  Ballot result;
  int failed = -1;
  bool caused = false;
  for (int rank = comm.size() - 1; rank >= 0; --rank) {
    if (ballots[rank].failed == 1) {
      failed = rank;
      caused = true;
    } else if (ballots[rank].failed == 2 && !caused) {
      failed = rank;
    }
    if (ballots[rank].signal != 0) result.signal = ballots[rank].signal;
    if (ballots[rank].out_of_time != 0) result.out_of_time = true;
    if (ballots[rank].nonfinite != 0) {
      result.nonfinite = true;
      result.nonfinite_rank = rank;
    }
  }
  if (failed < 0) return result;
  const auto messages = gather_texts(comm, error ? message_of(error) : std::string());
  if (error && !(mine.consequence && caused)) std::rethrow_exception(error);
  throw CommError(fmt::format("stopped because rank {} failed: {}", failed, messages[failed]),
                  failed);
}

}  // namespace dtrain
