#include "dtrain/launcher/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/base/error.h"
#include "dtrain/launcher/console.h"
#include "dtrain/launcher/descendants.h"
#include "dtrain/launcher/exit_code.h"
#include "dtrain/launcher/free_port.h"
#include "dtrain/launcher/process.h"
#include "dtrain/launcher/rank_output.h"
#include "dtrain/launcher/stop_signals.h"

namespace dtrain {

namespace {

// Seconds that the other ranks get, once one has failed, to notice it themselves and say so. One
// that others blame gets them too: it may be about to tell what happened to it.
constexpr double failure_grace = 2;

constexpr std::array<ConsoleStream, 2> streams = {ConsoleStream::output, ConsoleStream::error};

class Supervisor {
 public:
  Supervisor(const JobSpec& job, Console& console);
  ~Supervisor();
  JobEnd run();

 private:
  void start_ranks();
  std::vector<std::string> rank_environment(int rank, int port) const;
  void loop();
  void handle_signals();
  void request_stop(int signal);
  void reap();
  void note_end(RankEnd& end, int status);
  void take_reports();
  void begin_abort();
  void pass_deadline();
  void signal_ranks(int signal);
  void kill_ranks();
  JobEnd conclude();

  const JobSpec& job_;
  Console& console_;
  SignalReader signals_;
  std::set<pid_t> foreign_children_;
  StatusPage status_;
  UniqueFd report_read_, report_write_;
  ReportReader reports_;
  std::vector<std::unique_ptr<RankOutput>> outputs_;
  std::vector<RankEnd> ends_;
  int running_ = 0;
  int stop_signal_ = 0;
  bool forced_ = false;
  bool aborting_ = false;
  Deadline kill_at_;  // when the ranks that still run get SIGKILL
  std::int64_t oom_kills_before_ = -1;
};

Supervisor::Supervisor(const JobSpec& job, Console& console)
    : job_(job), console_(console), status_(StatusPage::create(job.ranks)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe for reports");
  }
  report_read_.reset(ends[0]);
  report_write_.reset(ends[1]);
  foreign_children_ = current_children();
  adopt_orphans();
  oom_kills_before_ = count_oom_kills();
}

Supervisor::~Supervisor() {
  // After an error too: nothing that was started outlives this object.
  kill_ranks();
  end_children_except(foreign_children_);
}

JobEnd Supervisor::run() {
  start_ranks();
  loop();
  return conclude();
}

std::vector<std::string> Supervisor::rank_environment(int rank, int port) const {
  std::vector<std::string> variables = job_.environment;
  auto set = [&](const char* name, const auto& value) {
    variables.push_back(fmt::format("{}={}", name, value));
  };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", job_.ranks);
  set("LOCAL_WORLD_SIZE", job_.ranks);
  set("NODE_RANK", 0);
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", port);
  set("DTRAIN_STORE", job_.store);
  set("DTRAIN_RESTART", job_.attempt);
  if (job_.own_ranks) {
    set("DTRAIN_STATUS_FD", status_.fd());
    set("DTRAIN_REPORT_FD", report_write_.get());
    // The team that computes a sum decides its bits (Note [Threads of oneDNN]): nothing but dtrain
    // may choose its size.
    set("OMP_DYNAMIC", "false");
    set("OMP_WAIT_POLICY", "passive");
  } else if (::getenv("OMP_NUM_THREADS") == nullptr) {
    set("OMP_NUM_THREADS", std::max(1, cpu_count().usable / job_.ranks));
  }
  std::vector<std::string> environment = environment_with(variables);
  if (job_.own_ranks) {
    std::erase_if(environment,
                  [](const std::string& entry) { return entry.starts_with("OMP_THREAD_LIMIT="); });
  }
  return environment;
}

void Supervisor::start_ranks() {
  const int port = find_free_port();
  for (int rank = 0; rank < job_.ranks; ++rank) {
    const bool shown =
        job_.shown == ShownRanks::all || (job_.shown == ShownRanks::first && rank == 0);
    const std::filesystem::path log = job_.log_folder.empty()
                                          ? std::filesystem::path()
                                          : job_.log_folder / fmt::format("rank-{}.log", rank);
    auto output = std::make_unique<RankOutput>(rank == 0 ? "" : fmt::format("[r{}] ", rank), log,
                                               job_.append_logs, shown ? &console_ : nullptr);
    output->open(shown && rank == 0 && console_.is_terminal(ConsoleStream::error));

    ProcessSpec spec;
    spec.arguments = job_.command;
    spec.environment = rank_environment(rank, port);
    spec.standard_output = output->rank_output();
    spec.standard_error = output->rank_error();
    spec.inherited = job_.inherited;
    if (job_.own_ranks) {
      spec.inherited.push_back(status_.fd());
      spec.inherited.push_back(report_write_.get());
    }
    ::pthread_sigmask(SIG_BLOCK, nullptr, &spec.blocked_signals);
    if (job_.own_ranks) {
      // A signal that comes before the rank can handle it must wait, not kill the rank.
      const sigset_t stops = stop_signals();
      for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
        if (::sigismember(&stops, signal)) ::sigaddset(&spec.blocked_signals, signal);
      }
    }
    RankEnd end;
    end.rank = rank;
    end.log = log;
    end.pid = start_process(spec);
    output->close_rank_side();
    ends_.push_back(std::move(end));
    outputs_.push_back(std::move(output));
    ++running_;
  }
}

void Supervisor::loop() {
  std::vector<pollfd> polled;
  std::vector<std::pair<int, ConsoleStream>> sources;  // rank and stream of polled[i + 4]
  while (running_ > 0) {
    polled.assign({{signals_.fd(), POLLIN, 0}, {report_read_.get(), POLLIN, 0}});
    for (ConsoleStream stream : streams) {
      polled.push_back({console_.pending(stream) ? console_.fd(stream) : -1, POLLOUT, 0});
    }
    sources.clear();
    for (int rank = 0; rank < job_.ranks; ++rank) {
      for (ConsoleStream stream : streams) {
        const int fd = outputs_[rank]->fd(stream);
        if (fd < 0 || console_.full(stream)) continue;
        sources.emplace_back(rank, stream);
        polled.push_back({fd, POLLIN, 0});
      }
    }
    const double left = kill_at_.left();
    const int timeout = std::isinf(left) ? -1 : static_cast<int>(std::min(left * 1000 + 1, 1e9));
    const int ready = ::poll(polled.data(), polled.size(), timeout);
    if (ready < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "cannot wait for ranks");
    }
    if (ready > 0) {
      for (std::size_t i = 0; i < streams.size(); ++i) {
        if (polled[2 + i].revents != 0) console_.write_some(streams[i]);
      }
      for (std::size_t i = 0; i < sources.size(); ++i) {
        if (polled[4 + i].revents != 0) outputs_[sources[i].first]->read(sources[i].second);
      }
      if (polled[1].revents != 0) take_reports();
      if (polled[0].revents != 0) handle_signals();
    }
    if (kill_at_.passed()) pass_deadline();
  }
}

void Supervisor::handle_signals() {
  bool child = false;
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      child = true;
    } else {
      request_stop(signal);
    }
  }
  if (child) reap();
}

void Supervisor::request_stop(int signal) {
  if (stop_signal_ != 0) {
    // Someone is impatient.
    if (!forced_) {
      console_.write_lines(ConsoleStream::error,
                           fmt::format("{}: ended all ranks at once\n", signal_text(signal)));
    }
    forced_ = true;
    kill_ranks();
    return;
  }
  stop_signal_ = signal;
  console_.write_lines(ConsoleStream::error,
                       fmt::format("{}: stopping all ranks; a second signal ends them at once\n",
                                   signal_text(signal)));
  signal_ranks(signal);
  if (!aborting_) kill_at_ = Deadline(job_.stop_grace);
}

void Supervisor::signal_ranks(int signal) {
  for (const RankEnd& end : ends_) {
    if (!end.ended) ::kill(end.pid, signal);
  }
}

void Supervisor::kill_ranks() {
  for (RankEnd& end : ends_) {
    if (end.ended) continue;
    end.killed_by_us = true;
    ::kill(-end.pid, SIGKILL);
    ::kill(end.pid, SIGKILL);
  }
}

void Supervisor::pass_deadline() {
  if (!aborting_) {
    forced_ = true;
    std::vector<int> late;
    for (const RankEnd& end : ends_) {
      if (!end.ended) late.push_back(end.rank);
    }
    console_.write_lines(
        ConsoleStream::error,
        fmt::format("rank{} {} did not stop within {:g} s: ended with SIGKILL\n",
                    late.size() == 1 ? "" : "s", fmt::join(late, ", "), job_.stop_grace));
  }
  kill_ranks();
  kill_at_ = Deadline();
}

void Supervisor::reap() {
  // Looked at before it is reaped, so that its process group's number cannot be another's yet.
  siginfo_t info;
  while (true) {
    info.si_pid = 0;
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto end = std::find_if(ends_.begin(), ends_.end(), [&](const RankEnd& other) {
      return other.pid == info.si_pid && !other.ended;
    });
    if (end != ends_.end()) ::kill(-info.si_pid, SIGKILL);
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (end != ends_.end()) note_end(*end, status);
  }
}

void Supervisor::note_end(RankEnd& end, int status) {
  const RankStatus& shown = status_.rank(end.rank);
  end.ended = true;
  end.time_ns = monotonic_ns();
  end.step = shown.step.load(std::memory_order_relaxed);
  end.phase = shown.phase.load(std::memory_order_relaxed);
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_code = WEXITSTATUS(status);
  }
  // One that ended in another way before SIGKILL reached it was not killed by it.
  if (end.killed_by_us && end.signal != SIGKILL && end.signal != SIGTERM) end.killed_by_us = false;
  if (job_.own_ranks) {
    end.orderly = end.signal == 0 && end.phase == RankPhase::end &&
                  exit_code::is_orderly(end.exit_code) && !end.report;
  } else {
    end.orderly = end.signal == 0 && end.exit_code == 0;
  }
  --running_;
  take_reports();
  outputs_[end.rank]->finish();
  end.last_lines = outputs_[end.rank]->last_lines();
  // A program that was asked to stop ends as it likes.
  if (end.failed() && (stop_signal_ == 0 || job_.own_ranks)) begin_abort();
}

void Supervisor::take_reports() {
  for (RankReport& report : reports_.read(report_read_.get())) {
    if (report.rank < 0 || report.rank >= job_.ranks) continue;
    RankEnd& end = ends_[report.rank];
    if (end.report) continue;  // the first counts
    end.step = report.step;
    end.orderly = false;
    end.report = std::move(report);
    begin_abort();
  }
}

void Supervisor::begin_abort() {
  if (aborting_) return;
  aborting_ = true;
  kill_at_ = Deadline(failure_grace);
  if (job_.own_ranks) return;  // they notice by themselves, and say what they noticed
  for (RankEnd& end : ends_) {
    if (end.ended) continue;
    end.killed_by_us = true;
    ::kill(-end.pid, SIGTERM);
  }
}

JobEnd Supervisor::conclude() {
  end_children_except(foreign_children_);
  for (const auto& output : outputs_) {
    if (!output->log_error().empty()) {
      console_.write_lines(ConsoleStream::error, "warning: " + output->log_error() + "\n");
    }
  }
  JobEnd result;
  result.stop_signal = stop_signal_;
  result.forced = forced_;
  const std::int64_t oom_kills = count_oom_kills();
  const bool counted = oom_kills >= 0 && oom_kills_before_ >= 0;
  if (aborting_) {
    result.failure = explain_failure(ends_, counted ? oom_kills - oom_kills_before_ : -1);
  }
  if (result.failure) {
    result.failure->has_steps = job_.own_ranks;
    result.failure->attempt = job_.attempt;
    result.failure->attempts = job_.attempts;
    result.exit_code = result.failure->exit_code;
  } else if (forced_) {
    result.exit_code = exit_code::of_signal(stop_signal_);
  } else {
    for (const RankEnd& end : ends_) {
      const int code = end.signal != 0 ? exit_code::of_signal(end.signal) : end.exit_code;
      result.exit_code = std::max(result.exit_code, code);
    }
  }
  // Signals that came too late to matter must not end the launcher before it has reported.
  while (signals_.next() != 0) {
  }
  return result;
}

}  // namespace

JobEnd supervise(const JobSpec& job) {
  Console console;
  JobEnd end;
  {
    Supervisor supervisor(job, console);
    end = supervisor.run();
  }
  // No rank is left, so it may take as long as the reader likes; signals end it as usual.
  console.flush();
  end.output_error = console.lost_with(ConsoleStream::output);
  return end;
}

int code_with_output(const JobEnd& end) {
  if (end.output_error == 0 || end.exit_code != exit_code::done) return end.exit_code;
  fmt::print(stderr, "dtrain: standard output: {}\n", errno_text(end.output_error));
  return exit_code::failed;
}

}  // namespace dtrain
