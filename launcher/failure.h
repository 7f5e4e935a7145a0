// Why a job failed: which of its ranks failed first, and which only because of it.
//
// One rank's death makes all others fail within moments, in their communication. The cause is the
// rank that failed by itself; a rank whose CommError blames another is a consequence, and if only
// such errors exist (a rank stalled), the one that is blamed is the cause.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>

#include <nlohmann/json.hpp>

#include "dtrain/launcher/rank_report.h"
#include "dtrain/parallel/train/rank_status.h"

namespace dtrain {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  bool ended = false;
  bool orderly = false;       // it finished or stopped as it should
  bool killed_by_us = false;  // by the launcher, because the job was over
  int exit_code = 0;          // if no signal ended it
  int signal = 0;             // that ended it; 0: it exited
  std::int64_t time_ns = 0;   // when the launcher saw it end
  std::optional<RankReport> report;
  std::int64_t step = 0;  // the step under way; 0 before the first
  RankPhase phase = RankPhase::start;
  std::deque<std::string> last_lines;
  std::filesystem::path log;

  // It ended badly, and not because the launcher ended it.
  bool failed() const { return report.has_value() || (ended && !orderly && !killed_by_us); }
};

struct JobFailure {
  RankEnd cause;
  std::string error;  // what happened to it, in words
  int exit_code = 1;  // of the launcher
  std::string kind;   // of the error; empty where a signal or exit code is all there is
  std::vector<std::string> followers;  // "rank 1 (pid 7, step 3): stopped by the launcher"
  std::string host;
  int attempt = 0;  // of --max-restarts, counted from 0
  int attempts = 1;
  bool has_steps = true;  // false for programs that are not dtrain's own ranks

  // True if another attempt could end otherwise.
  bool worth_restarting() const;
};

// Index of the rank that failed first, -1 if none did.
int find_cause(std::span<const RankEnd> ends);

// `oom_kills`: processes that the kernel killed for lack of memory while the job ran, -1 if that
// could not be read.
std::optional<JobFailure> explain_failure(std::span<const RankEnd> ends, std::int64_t oom_kills);

// The report for people: several lines, the first of which names rank, host, pid, step and error.
std::string to_text(const JobFailure& failure);

// {rank, host, pid, step, error | signal | exit_code}, as in summary.json.
nlohmann::ordered_json to_json(const JobFailure& failure);

// Sets status ("failed", "stopped") and, unless it is null, failure in summary.json, keeping what
// else it holds; writes it anew if there is none, or it is not readable.
void write_status(const std::filesystem::path& summary, const std::string& status,
                  const nlohmann::ordered_json& failure);

// "signal 11 (SIGSEGV)".
std::string signal_text(int signal);

// Processes of this cgroup (or, if that is not readable, of the machine) that the kernel killed for
// lack of memory so far; -1 if unknown.
std::int64_t count_oom_kills();

std::string host_name();

}  // namespace dtrain
