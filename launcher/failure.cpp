#include "dtrain/launcher/failure.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <signal.h>
#include <sstream>
#include <string.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "dtrain/core/base/control_group.h"
#include "dtrain/core/base/files.h"
#include "dtrain/launcher/exit_code.h"

namespace dtrain {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// It could not go on because of another rank.
bool blames_another(const RankEnd& end) {
  return end.report && end.report->kind == "comm" && end.report->blamed_rank >= 0 &&
         end.report->blamed_rank != end.rank;
}

// It could not reach the others, and does not know whose fault that is.
bool lost_contact(const RankEnd& end) {
  return end.report && end.report->kind == "comm";
}

std::int64_t failure_time(const RankEnd& end) {
  return end.report ? end.report->time_ns : end.time_ns;
}

// Index of the earliest for which `chosen` holds, -1 if none.
template <typename Predicate>
int earliest(std::span<const RankEnd> ends, Predicate chosen) {
  int first = -1;
  for (int i = 0; i < static_cast<int>(ends.size()); ++i) {
    if (!chosen(ends[i])) continue;
    if (first < 0 || failure_time(ends[i]) < failure_time(ends[first])) first = i;
  }
  return first;
}

std::string step_text(const JobFailure& failure, const RankEnd& end) {
  if (!failure.has_steps) return "";
  if (end.step > 0) return fmt::format(", step {}", end.step);
  return fmt::format(", before step 1 ({})", to_string(end.phase));
}

std::string describe_end(const RankEnd& end) {
  if (end.report) return end.report->error;
  if (end.signal != 0) return signal_text(end.signal);
  return fmt::format("exit code {}", end.exit_code);
}

std::string describe_follower(const RankEnd& end) {
  if (end.orderly) return "had finished";
  if (end.killed_by_us && !end.report) return "ended by the launcher";
  std::string text = describe_end(end);
  constexpr std::size_t longest = 200;
  if (text.size() > longest) text = text.substr(0, longest) + " [...]";
  return text;
}

std::string out_of_memory_text(std::int64_t oom_kills) {
  if (oom_kills < 0) return "possibly out of memory";
  return fmt::format(
      "possibly out of memory: the kernel counts {} processes killed for lack of it during this "
      "run",
      oom_kills);
}

}  // namespace

int find_cause(std::span<const RankEnd> ends) {
  // Who failed by itself, first of all; then chains of blame.
  const int own = earliest(ends, [](const RankEnd& end) {
    return end.failed() && !blames_another(end) && !lost_contact(end);
  });
  if (own >= 0) return own;
  int cause = earliest(ends, blames_another);
  if (cause < 0) return earliest(ends, [](const RankEnd& end) { return end.failed(); });
  std::set<int> seen;
  while (seen.insert(cause).second && blames_another(ends[cause])) {
    const int blamed = ends[cause].report->blamed_rank;
    if (blamed >= static_cast<int>(ends.size())) break;
    cause = blamed;
  }
  return cause;
}

std::optional<JobFailure> explain_failure(std::span<const RankEnd> ends, std::int64_t oom_kills) {
  const int index = find_cause(ends);
  if (index < 0) return std::nullopt;
  JobFailure failure;
  failure.cause = ends[index];
  failure.host = host_name();
  const RankEnd& cause = failure.cause;
  if (cause.failed()) {
    failure.error = describe_end(cause);
    if (cause.report) failure.kind = cause.report->kind;
    if (cause.killed_by_us) {
      // It reported its error and then did not end by itself.
    } else if (cause.signal != 0) {
      failure.exit_code = exit_code::of_signal(cause.signal);
      if (cause.signal == SIGKILL && !cause.report) {
        failure.error += "; " + out_of_memory_text(oom_kills);
      }
    } else if (cause.exit_code != 0) {
      failure.exit_code = cause.exit_code;
    } else if (!cause.report) {
      failure.error += " before the end of the run";
    }
  } else {
    // It is the one that others waited for.
    const int witness = earliest(ends, [&](const RankEnd& end) {
      return blames_another(end) && end.report->blamed_rank == cause.rank;
    });
    failure.kind = "comm";
    failure.error = witness < 0 ? "the others waited for it"
                                : fmt::format("rank {} waited for it: {}", ends[witness].rank,
                                              ends[witness].report->error);
  }
  for (const RankEnd& end : ends) {
    if (end.rank == cause.rank) continue;
    failure.followers.push_back(
        fmt::format("rank {} (pid {}): {}", end.rank, end.pid, describe_follower(end)));
  }
  return failure;
}

bool JobFailure::worth_restarting() const {
  return kind != "config" && kind != "nonfinite";
}

std::string to_text(const JobFailure& failure) {
  const RankEnd& cause = failure.cause;
  std::string text = fmt::format("error: rank {} failed (host {}, pid {}{}): {}\n", cause.rank,
                                 failure.host, cause.pid, step_text(failure, cause), failure.error);
  if (failure.attempts > 1) {
    text += fmt::format("  attempt {} of {}\n", failure.attempt + 1, failure.attempts);
  }
  if (!cause.last_lines.empty()) {
    text += fmt::format("  last lines of its output{}:\n",
                        cause.log.empty() ? "" : " (all in " + cause.log.string() + ")");
    for (const std::string& line : cause.last_lines) text += "  | " + line + "\n";
  } else if (!cause.log.empty()) {
    text += fmt::format("  its log: {} (empty)\n", cause.log.string());
  }
  if (!failure.followers.empty()) {
    text += fmt::format("  stopped because rank {} failed:\n", cause.rank);
    for (const std::string& follower : failure.followers) text += "    " + follower + "\n";
  }
  return text;
}

ordered_json to_json(const JobFailure& failure) {
  const RankEnd& cause = failure.cause;
  ordered_json json{{"rank", cause.rank}, {"host", failure.host}, {"pid", cause.pid}};
  if (failure.has_steps) json["step"] = cause.step;
  if (!failure.kind.empty()) {
    json["error"] = failure.error;
  } else if (cause.signal != 0) {
    json["signal"] = cause.signal;
  } else {
    json["exit_code"] = cause.exit_code;
  }
  return json;
}

void write_status(const fs::path& summary, const std::string& status, const ordered_json& failure) {
  ordered_json content;
  try {
    constexpr std::uint64_t largest = 16 << 20;
    content = ordered_json::parse(read_file(summary, largest), nullptr, false);
  } catch (const std::system_error&) {
    // There is none yet.
  }
  ordered_json written{{"status", status}};
  if (content.is_object()) {
    for (const auto& [key, value] : content.items()) {
      if (key != "status" && key != "failure") written[key] = value;
    }
  }
  if (!failure.is_null()) written["failure"] = failure;
  write_file_atomically(summary,
                        written.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("signal {} (SIG{})", signal, name);
}

namespace {

// The number after `key` in text of lines "key number"; -1 if it is not there.
std::int64_t number_after(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = -1;
    if (words >> name >> value && name == key) return value;
  }
  return -1;
}

}  // namespace

std::int64_t count_oom_kills() {
  for (const ControlGroup& group : control_groups("memory")) {
    const fs::path folder = group.levels().front();
    const std::int64_t count = number_after(
        folder / (group.version == 2 ? "memory.events" : "memory.oom_control"), "oom_kill");
    if (count >= 0) return count;
  }
  return number_after("/proc/vmstat", "oom_kill");
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

}  // namespace dtrain
