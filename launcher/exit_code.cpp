#include "dtrain/launcher/exit_code.h"

#include <signal.h>

namespace dtrain::exit_code {

int of_end(RunEnd end, int signal) {
  switch (end) {
    case RunEnd::done:
    case RunEnd::nothing:
      return done;
    case RunEnd::stopped:
      return signal == SIGUSR1 ? requeue : of_signal(signal == 0 ? SIGTERM : signal);
    case RunEnd::out_of_time:
      return requeue;
  }
  return failed;
}

bool is_orderly(int code) {
  return code == done || code == requeue || code == of_signal(SIGTERM) ||
         code == of_signal(SIGINT) || code == of_signal(SIGHUP);
}

}  // namespace dtrain::exit_code
