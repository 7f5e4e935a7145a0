// What one rank prints: read from its pipes, cut into lines, written to its log file and, with the
// rank in front, to the console. Keeps the last lines for the failure report.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/base/files.h"
#include "dtrain/launcher/console.h"

namespace dtrain {

// Cuts bytes into lines, in bounded memory: a line of more than `longest` bytes becomes several.
class LineSplitter {
 public:
  static constexpr std::size_t longest = 64 << 10;
  using LineFunction = std::function<void(std::string_view line)>;  // without its newline

  void add(std::string_view bytes, const LineFunction& line);
  // The rest, if the last line had no newline.
  void finish(const LineFunction& line);

 private:
  std::string rest_;
};

// What remains visible of a terminal's line: text that a carriage return overwrote and escape
// sequences are gone.
std::string visible_text(std::string_view line);

class RankOutput {
 public:
  static constexpr std::size_t kept_lines = 20;

  // Lines go to `console` with `prefix` before them, unless it is null; and to the file `log`,
  // unless that is empty. `terminal`: standard error is a terminal of its own (see
  // use_terminal).
  RankOutput(std::string prefix, std::filesystem::path log, bool append_to_log, Console* console);

  // Makes the pipes. Standard error becomes a pseudo-terminal of the size of the console's if
  // `terminal` (and the system has one left), so that a rank draws what it draws on terminals.
  // Throws std::system_error.
  void open(bool terminal);
  // Ends of the rank's side, to be closed here once the rank runs.
  int rank_output() const { return rank_side_[0].get(); }
  int rank_error() const { return rank_side_[1].get(); }
  void close_rank_side();

  // Descriptor to poll for `stream`, -1 at its end.
  int fd(ConsoleStream stream) const { return sources_[static_cast<std::size_t>(stream)].fd.get(); }
  // Reads what is there, without waiting.
  void read(ConsoleStream stream);
  // Reads the rest of a rank that has ended and closes the pipes, also where a descendant of the
  // rank still holds them.
  void finish();

  const std::deque<std::string>& last_lines() const { return last_lines_; }
  const std::filesystem::path& log() const { return log_path_; }
  // Why the log could not be written; empty if it could.
  const std::string& log_error() const { return log_error_; }

 private:
  struct Source {
    UniqueFd fd;
    LineSplitter splitter;
    bool terminal = false;
  };

  bool read_once(ConsoleStream stream);
  void end(ConsoleStream stream);
  void take_line(Source& source, std::string_view line, std::string& for_console);
  void write_log();

  std::string prefix_;
  std::filesystem::path log_path_;
  Console* console_;
  UniqueFd log_;
  std::string log_error_;
  std::string for_log_;
  std::vector<UniqueFd> rank_side_;
  std::vector<Source> sources_;
  std::deque<std::string> last_lines_;
};

}  // namespace dtrain
