// The signals that ask a job to stop, read as events rather than caught.
#pragma once

#include <signal.h>

#include "dtrain/core/base/files.h"

namespace dtrain {

// SIGINT, SIGTERM, SIGHUP and SIGUSR1; without SIGHUP if it was ignored when this process started
// (nohup), so that it stays ignored.
sigset_t stop_signals();

// Blocks the stop signals and SIGCHLD for its lifetime and offers them for reading instead.
class SignalReader {
 public:
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int fd() const { return fd_.get(); }  // readable when a signal is there
  int next();                           // the next signal, 0 if there is none
  const sigset_t& mask_before() const { return before_; }

 private:
  UniqueFd fd_;
  sigset_t before_;
  struct sigaction child_before_;
};

}  // namespace dtrain
