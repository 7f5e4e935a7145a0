// Starts the processes of a job and stays with them to the end: passes on their output and the
// signals that the launcher gets, notices who fails, ends the others, leaves no process behind.
//
//   JobSpec job{.command = {"/usr/bin/env"}, .ranks = 4};
//   JobEnd end = supervise(job);
//
// Note [No rank survives]: ranks get SIGKILL when the launcher ends in whatever way (see
// process.h); a rank's process group gets SIGKILL when the rank ends; and what left its group is
// adopted by the launcher (as a subreaper, or as process 1 of a container) and ended with the job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "dtrain/launcher/failure.h"

namespace dtrain {

enum class ShownRanks : std::uint8_t {
  all,
  first,    // rank 0 only
  failures  // none: the failure report alone
};

struct JobSpec {
  std::vector<std::string> command;
  int ranks = 1;
  // The processes are dtrain's own ranks (rank_process.h): they report errors, show their step and
  // stop in good order. Other programs get SIGTERM when one of them fails.
  bool own_ranks = false;
  std::string store;                     // address of the store; empty: none
  std::vector<std::string> environment;  // more variables, "NAME=value"
  std::vector<int> inherited;            // descriptors that ranks get under their numbers
  std::filesystem::path log_folder;      // of rank-N.log; empty: no logs
  bool append_logs = false;
  ShownRanks shown = ShownRanks::all;
  double stop_grace = 30;  // seconds between a signal to stop and SIGKILL
  int attempt = 0;         // of --max-restarts
  int attempts = 1;
};

struct JobEnd {
  int exit_code = 0;
  std::optional<JobFailure> failure;
  int stop_signal = 0;   // the signal that the launcher got, 0 if none
  int output_error = 0;  // errno with which standard output lost text, 0 if it did not
  bool forced = false;   // ranks did not stop in time, or a second signal came
};

// Throws ConfigError if the program cannot be executed, std::system_error if the system lacks what
// a process needs; no process is left then either. Called from the main thread.
JobEnd supervise(const JobSpec& job);

// The job's exit code, for a job whose standard output is its result: a full disk makes it fail,
// which standard error tells.
int code_with_output(const JobEnd& end);

}  // namespace dtrain
