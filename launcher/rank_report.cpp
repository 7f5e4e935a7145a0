#include "dtrain/launcher/rank_report.h"

#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace dtrain {

using nlohmann::json;

namespace {

std::string to_line(const RankReport& report) {
  const json object{{"rank", report.rank},   {"kind", report.kind},
                    {"error", report.error}, {"blamed_rank", report.blamed_rank},
                    {"step", report.step},   {"time_ns", report.time_ns}};
  // An error may quote bytes of bad data: those that are no UTF-8 are replaced.
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::int64_t monotonic_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void send_report(int fd, const RankReport& report) {
  RankReport shortened = report;
  std::string line = to_line(report);
  while (line.size() > PIPE_BUF) {
    // Escapes make JSON longer than the text, so cut until it fits.
    shortened.error.resize(shortened.error.size() * 3 / 4);
    RankReport marked = shortened;
    marked.error += " [...]";
    line = to_line(marked);
  }
  while (::write(fd, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

std::vector<RankReport> ReportReader::read(int fd) {
  std::array<char, PIPE_BUF> buffer;
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    rest_.append(buffer.data(), static_cast<std::size_t>(n));
  }
  std::vector<RankReport> reports;
  std::size_t newline;
  while ((newline = rest_.find('\n')) != std::string::npos) {
    const json object = json::parse(rest_.substr(0, newline), nullptr, false);
    rest_.erase(0, newline + 1);
    if (!object.is_object()) continue;
    try {
      reports.push_back({object.at("rank"), object.at("kind"), object.at("error"),
                         object.at("blamed_rank"), object.at("step"), object.at("time_ns")});
    } catch (const json::exception&) {
      // Not from a rank of ours: a program may write to any descriptor that it inherits.
    }
  }
  return reports;
}

}  // namespace dtrain
