// The signals that ask a job to stop, as events to read.
#pragma once

#include <array>
#include <signal.h>

#include "dtrain/core/base/files.h"

namespace dtrain {

// SIGINT, SIGTERM, SIGHUP and SIGUSR1; without SIGHUP if it was ignored when this process started
// (nohup), so that it stays ignored.
sigset_t stop_signals();

// Catches the stop signals and SIGCHLD for its lifetime and offers them for reading.
//
// By handlers rather than a signalfd: that would need the signals blocked in every thread, and
// libraries have started some by then. There can be one at a time.
class SignalReader {
 public:
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int fd() const { return read_.get(); }  // readable when a signal is there
  int next();                             // the next signal, 0 if there is none

 private:
  struct Caught {
    int signal = 0;  // 0: not caught
    struct sigaction before;
  };
  UniqueFd read_, write_;
  std::array<Caught, 5> caught_;
};

}  // namespace dtrain
