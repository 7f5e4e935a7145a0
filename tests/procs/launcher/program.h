// Running dtrain as a user would, and looking at what it leaves.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include "dtrain/core/base/files.h"

namespace dtrain {

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string output;
  std::string error;
};

// A running dtrain, or another program. Its output goes to files, so that nothing waits for us.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables = {});
  ~Program();  // kills it if it still runs

  pid_t pid() const { return pid_; }
  std::string output() const;  // so far
  std::string error() const;
  // Waits until the output holds `count` lines; false after `seconds`.
  bool wait_for_lines(std::size_t count, double seconds = 20) const;
  void signal(int number) const;
  Outcome wait();

 private:
  TemporaryDirectory folder_;
  pid_t pid_ = -1;
};

// dtrain with these arguments, to its end.
Outcome run_dtrain(std::vector<std::string> arguments,
                   const std::vector<std::string>& variables = {});

// `dtrain launch --nproc N -- sh -c SCRIPT`
std::vector<std::string> launch_shell(int nproc, const std::string& script);

std::vector<std::string> lines_of(const std::string& text);

// True if the process exists and is no zombie.
bool is_alive(pid_t pid);
// Waits until none of them is alive; false after `seconds`.
bool wait_for_end(const std::vector<pid_t>& pids, double seconds);

}  // namespace dtrain
