#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

void Work::wait() const {
  event_.wait();
  if (error_ && *error_) std::rethrow_exception(*error_);
}

void barrier(Communicator& comm) {
  InlineStream stream;
  comm.all_gather(stream, {}, {}).wait();
}

}  // namespace dtrain
