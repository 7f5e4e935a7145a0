#include "dtrain/launcher/rank_process.h"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <new>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <stdlib.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/log.h"
#include "dtrain/launcher/exit_code.h"
#include "dtrain/launcher/job.h"
#include "dtrain/launcher/rank_report.h"
#include "dtrain/launcher/stop_signals.h"

namespace dtrain {

namespace {

// A signal handler can reach nothing else.
std::atomic<int> received_stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

// The first signal counts: the launcher deals with impatience.
extern "C" void note_stop_signal(int signal) {
  int none = 0;
  received_stop_signal.compare_exchange_strong(none, signal);
}

// The launcher starts ranks with these signals blocked, so none is lost before this.
void handle_stop_signals() {
  const sigset_t set = stop_signals();
  struct sigaction action = {};
  action.sa_handler = note_stop_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    if (::sigismember(&set, signal)) ::sigaction(signal, &action, nullptr);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  // A peer or launcher that is gone is an error of the call that writes to it.
  ::signal(SIGPIPE, SIG_IGN);
  // So is a file that becomes larger than RLIMIT_FSIZE.
  ::signal(SIGXFSZ, SIG_IGN);
}

int descriptor(const char* variable) {
  const char* text = ::getenv(variable);
  int fd = -1;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), fd);
  if (fd < 0) {
    throw ConfigError(fmt::format(
        "'rank' is how dtrain starts its own ranks ({} is not set): use dtrain CONFIG.yaml",
        variable));
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

RankReport describe(const std::exception_ptr& exception) {
  RankReport report;
  report.time_ns = monotonic_ns();
  report.kind = "exception";
  try {
    std::rethrow_exception(exception);
  } catch (const CommError& error) {
    report.kind = to_string(error.kind());
    report.error = error.what();
    report.blamed_rank = error.blamed_rank();
  } catch (const Error& error) {
    report.kind = to_string(error.kind());
    report.error = error.what();
  } catch (const std::bad_alloc&) {
    report.error = "out of memory (std::bad_alloc)";
  } catch (const std::exception& error) {
    report.error = error.what();
  } catch (...) {
    report.error = "an exception of unknown type";
  }
  return report;
}

int run_task(const launcher::Job& job, const Registry& registry, const RankInfo& rank,
             const RunOptions& options) {
  const Config config = config_of(job, registry.kinds());
  if (job.task() == launcher::Job::EVALUATE) {
    const nlohmann::ordered_json result = evaluate(config, registry, rank, job.weights(), options);
    if (const int signal = result.value("stopped_by_signal", 0); signal != 0) {
      return exit_code::of_end(RunEnd::stopped, signal);
    }
    if (rank.rank == 0) fmt::print("{}\n", result.dump(2));
    return exit_code::done;
  }
  const RunResult result = train(config, registry, rank, options);
  return exit_code::of_end(result.end, result.signal);
}

}  // namespace

int run_rank(const Registry& registry) {
  const int job_fd = descriptor("DTRAIN_JOB_FD");
  const int status_fd = descriptor("DTRAIN_STATUS_FD");
  const int report_fd = descriptor("DTRAIN_REPORT_FD");
  const RankInfo rank = RankInfo::from_environment();
  handle_stop_signals();
  ::prctl(PR_SET_NAME, fmt::format("dtrain-r{}", rank.rank).c_str());
  // Lines reach the launcher as they are printed, so that a crash loses none. It puts the rank's
  // prefix before them.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  set_up_logging("", rank.rank == 0 ? spdlog::level::info : spdlog::level::warn);

  const StatusPage page = StatusPage::open(status_fd, rank.world_size);
  RankStatus& status = page.rank(rank.rank);
  auto report_error = [&](const std::exception_ptr& exception) {
    RankReport report = describe(exception);
    report.rank = rank.rank;
    report.step = status.step.load();
    send_report(report_fd, report);
    spdlog::error("{}", report.error);
    std::fflush(nullptr);
  };
  try {
    const launcher::Job job = read_job(job_fd);
    RunOptions options = options_of(job);
    options.status = &status;
    options.stop_signal = &received_stop_signal;
    const int code = run_task(job, registry, rank, options);
    std::fflush(nullptr);
    status.phase.store(RankPhase::end);
    return code;
  } catch (...) {
    report_error(std::current_exception());
    std::_Exit(exit_code::failed);
  }
}

}  // namespace dtrain
