// Injected faults, to test what a run does when something breaks:
//
//   DTRAIN_FAULT="rank=2,step=5,action=throw"     an exception in the step
//                                action=exit:7    the process exits with that code
//                                action=signal:11 the process gets that signal
//                                action=stall:30  the rank sleeps that many seconds
//                                action=nan_grad | inf_grad   one gradient of the rank
//
// Several faults are separated by ";". A fault happens once, at its step (counted from 1), and
// not again after --max-restarts began anew.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtrain {

enum class FaultAction : std::uint8_t {
  throw_error,
  exit,
  signal,
  stall,
  nan_gradient,
  inf_gradient
};

struct Fault {
  int rank = 0;
  std::int64_t step = 0;
  FaultAction action = FaultAction::throw_error;
  double argument = 0;  // exit code, signal number or seconds
};

// Throws ConfigError that shows the text and the form expected.
std::vector<Fault> parse_faults(const std::string& text);

// The faults of this rank, from DTRAIN_FAULT. None in a run that --max-restarts began anew
// (DTRAIN_RESTART > 0): it would only fail again.
std::vector<Fault> faults_from_environment(int rank);

// Carries out throw, exit, signal and stall, where due at `step`.
void inject_before_step(std::span<const Fault> faults, std::int64_t step);

// Spoils one of the gradients where a nan_grad or inf_grad fault is due.
void inject_into_gradients(std::span<const Fault> faults, std::int64_t step,
                           std::span<float> gradients);

}  // namespace dtrain
