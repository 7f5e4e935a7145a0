// How a rank tells the launcher, before it ends, which error ends it.
//
// Reports are lines of JSON in one pipe that all ranks share. Each is short enough to be written at
// once (PIPE_BUF), so they never mix, and what a rank wrote survives it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct RankReport {
  int rank = 0;
  std::string kind;          // to_string(ErrorKind), or "exception" for other types
  std::string error;         // its text
  int blamed_rank = -1;      // of a CommError: the rank that was waited for
  std::int64_t step = 0;     // the step under way
  std::int64_t time_ns = 0;  // monotonic clock of the machine
};

// Monotonic clock, the same for all processes of a machine.
std::int64_t monotonic_ns();

// Errors are ignored: the exit code still tells that the rank failed.
void send_report(int fd, const RankReport& report);

// Reads reports from the pipe's other end, without waiting.
class ReportReader {
 public:
  std::vector<RankReport> read(int fd);

 private:
  std::string rest_;
};

}  // namespace dtrain
