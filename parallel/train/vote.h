// The commit vote: at every step border all ranks learn what each has latched, and decide the same.
//
// Note [Commit vote]: errors, signals and time limits are matters of the whole job. A rank that saw
// one goes on to the step border as if nothing had happened, so that no collective waits for it;
// there all ranks vote. Nothing that outlives the step (weights, buffers, optimizer, data position)
// changes before the vote.
#pragma once

#include <exception>

#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

struct Ballot {
  int signal = 0;  // a stop signal that this rank got, 0 if none
  bool out_of_time = false;
  int nonfinite_rank = -1;   // result: the lowest rank whose gradients were not finite, or -1
  bool nonfinite = false;    // this rank's (result: any rank's) loss or gradients were not finite
  bool consequence = false;  // the error that this rank brings came of another rank's
};

// Collective. Returns what all ranks decided: the signal of the lowest rank that got one, and
// whether any rank's time is over. If a rank brought an error, it is rethrown there, and on the
// others a CommError that blames that rank and tells its message. A rank whose error is a
// consequence counts as one of the others if there is a rank with a cause.
Ballot vote(Communicator& comm, const Ballot& mine, std::exception_ptr error);

}  // namespace dtrain
