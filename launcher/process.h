// Starting a program as a child that cannot outlive this process.
//
//   ProcessSpec spec{.arguments = {"/bin/echo", "hello"}};
//   pid_t pid = start_process(spec);
#pragma once

#include <signal.h>
#include <string>
#include <sys/types.h>
#include <vector>

namespace dtrain {

struct ProcessSpec {
  std::vector<std::string> arguments;    // the first is the program, looked for in PATH
  std::vector<std::string> environment;  // "NAME=value", all of it
  int standard_output = -1;              // descriptors to use; -1 shares this process's
  int standard_error = -1;
  std::vector<int> inherited;  // further descriptors, kept under their numbers
  sigset_t blocked_signals;    // mask that the program begins with
};

// Runs the program in a process group of its own, with /dev/null as its input. It gets SIGKILL when
// the calling thread ends, however that happens. Throws ConfigError if it cannot be executed,
// std::system_error if the system has no room for a process.
pid_t start_process(const ProcessSpec& spec);

// This process's environment with some variables set or replaced.
std::vector<std::string> environment_with(const std::vector<std::string>& variables);

// Path of the running executable, for starting it again.
std::string own_executable();

}  // namespace dtrain
