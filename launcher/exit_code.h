// What the exit code of dtrain means, in one place (docs/running.md has the table for users).
#pragma once

#include "dtrain/parallel/train/train.h"

namespace dtrain::exit_code {

inline constexpr int done = 0;
inline constexpr int failed = 1;    // an error in training
inline constexpr int usage = 2;     // command line or configuration, before any rank starts
inline constexpr int requeue = 85;  // stopped with a checkpoint, to be started again

// A process that a signal ended, or that stopped because of one: 128 + signal, as shells have it.
constexpr int of_signal(int signal) {
  return 128 + signal;
}

// Of a rank whose train() returned.
int of_end(RunEnd end, int signal);

// True for the codes of of_end: the rank left in good order.
bool is_orderly(int code);

}  // namespace dtrain::exit_code
