#include "dtrain/launcher/main.h"

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <system_error>
#include <unistd.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/log.h"
#include "dtrain/core/base/system_error.h"
#include "dtrain/core/config/describe.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/exit_code.h"
#include "dtrain/launcher/rank_process.h"
#include "dtrain/launcher/stop_signals.h"

namespace dtrain {

namespace {

// A program that was started without standard streams must not find its files under their numbers.
void open_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

extern "C" void exit_by_signal(int signal) {
  ::_exit(exit_code::of_signal(signal));
}

// Process 1 of a container has no default reaction to signals. Once ranks run, the supervisor reads
// the signals; until then one ends the launcher.
void end_by_signals_as_process_1() {
  if (::getpid() != 1) return;
  const sigset_t set = stop_signals();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    if (::sigismember(&set, signal)) ::signal(signal, exit_by_signal);
  }
}

int run(const CommandLine& line, const Registry& registry) {
  switch (line.command) {
    case Command::run:
      return run_command(line, registry);
    case Command::check:
      return check_command(line, registry);
    case Command::evaluate:
      return evaluate_command(line, registry);
    case Command::sample:
      return sample_command(line, registry);
    case Command::version:
      return version_command();
    case Command::launch:
      return launch_command(line);
    case Command::help:
      fmt::print("{}", line.help);
      return exit_code::done;
    case Command::help_config:
      fmt::print("{}", describe_schema(registry.kinds()));
      return exit_code::done;
    case Command::rank:
      return run_rank(registry);
  }
  return exit_code::usage;
}

// Bad input gives 2; what the machine lacks, or a bug, 1.
int code_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::config:
    case ErrorKind::data:
    case ErrorKind::checkpoint:
    case ErrorKind::device:
      return exit_code::usage;
    default:
      return exit_code::failed;
  }
}

}  // namespace

int run_main(int argc, char** argv, const Registry& registry) {
  open_standard_streams();
  // A reader of the output that goes away ends the output, not the job.
  ::signal(SIGPIPE, SIG_IGN);
  // A file that becomes too large is an error of the write, which names it.
  ::signal(SIGXFSZ, SIG_IGN);
  end_by_signals_as_process_1();
  set_up_logging("", spdlog::level::info);
  std::error_code cwd_error;
  [[maybe_unused]] const auto folder = std::filesystem::current_path(cwd_error);
  if (cwd_error) {
    fmt::print(stderr, "dtrain: the working directory: {}; change to a folder that exists\n",
               errno_text(cwd_error.value()));
    return exit_code::usage;
  }
  CommandLine line;
  try {
    line = parse_command_line({argv + 1, argv + argc});
  } catch (const Error& error) {
    fmt::print(stderr, "dtrain: {}\n", error.what());
    return exit_code::usage;
  }
  try {
    const int code = run(line, registry);
    // Who closes a pipe early has read enough; a full disk has lost what was asked for.
    if (std::fflush(stdout) != 0 && errno != EPIPE) {
      fmt::print(stderr, "dtrain: standard output: {}\n", errno_text(errno));
      return code == exit_code::done ? exit_code::failed : code;
    }
    return code;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return code_of(error);
  } catch (const std::system_error& error) {
    fmt::print(stderr, "dtrain: {}\n", system_error_text(error));
    return exit_code::failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtrain: {}\n", error.what());
    return exit_code::failed;
  }
}

int run_main(int argc, char** argv) {
  return run_main(argc, argv, builtin_registry());
}

}  // namespace dtrain
