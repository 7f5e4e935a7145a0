// From the start of `dtrain --nproc 2` until its first training step is finished, seen from
// outside: the step's line stands in log.jsonl.
//
//   bench_launch [--runs 40] [--nproc 2] [--program build/release/dtrain] [--json FILE]
//
// Each run trains a small mlp in a new folder. The benchmark sleeps in inotify until the log grows,
// so it takes no time from the ranks; what it reports includes its own waking up.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measurements.h"
#include "program.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spawn.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// Of a run.
constexpr double give_up_seconds = 60;

const std::string recipe = R"(
model: {name: mlp, inputs: 784, hidden: [256, 128], outputs: 10}
data: {train: {kind: synthetic, shape: [784], classes: 10, size: 10000}}
batch: {global: 64, micro: 32}
optimizer: {name: sgd, lr: 0.01}
train: {steps: 1}
)";

struct Run {
  double first_step_ms = 0;
  double end_ms = 0;  // until the program has ended
};

// Starts a program; what it says goes to the file `output`.
pid_t start(std::vector<std::string> arguments, const fs::path& output) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw DeviceError(fmt::format("{}: {}", arguments[0], errno_text(error)));
  return pid;
}

double milliseconds_since(TimePoint start) {
  return seconds_since(start) * 1e3;
}

void expect_success(pid_t pid, const fs::path& output) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) throw DeviceError("the program failed:\n" + read_file(output));
}

bool has_step(const fs::path& log) {
  try {
    return read_file(log).find(R"("event":"step")") != std::string::npos;
  } catch (const std::system_error&) {
    return false;  // not there yet
  }
}

Run measure(const std::string& program, int nproc) {
  const TemporaryDirectory folder("dtrain-bench");
  const fs::path config = folder.path() / "mlp.yaml", output = folder.path() / "run";
  const fs::path said = folder.path() / "output";
  write_file_atomically(config, recipe);
  fs::create_directory(output);
  const UniqueFd watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!watch || ::inotify_add_watch(watch.get(), output.c_str(), IN_MODIFY) < 0) {
    throw DeviceError("cannot watch a folder: " + errno_text(errno));
  }
  Run run;
  const TimePoint begin = Clock::now();
  const pid_t pid = start(
      {program, "--nproc", std::to_string(nproc), config.string(), "output=" + output.string()},
      said);
  while (!has_step(output / "log.jsonl")) {
    pollfd entry{watch.get(), POLLIN, 0};
    ::poll(&entry, 1, 1000);
    char events[4096];
    while (::read(watch.get(), events, sizeof events) > 0) {
    }
    if (seconds_since(begin) > give_up_seconds) {
      ::kill(pid, SIGTERM);
      expect_success(pid, said);
      throw DeviceError(fmt::format("no step after {} s", give_up_seconds));
    }
  }
  run.first_step_ms = milliseconds_since(begin);
  expect_success(pid, said);
  run.end_ms = milliseconds_since(begin);
  return run;
}

// A process of the same program that does nothing: what the system and the linker take.
double version_ms(const std::string& program) {
  const TimePoint begin = Clock::now();
  expect_success(start({program, "version"}, "/dev/null"), "/dev/null");
  return milliseconds_since(begin);
}

int run(int argc, char** argv) {
  int runs = 40, nproc = 2;
  std::string json;
  std::string program = fs::read_symlink("/proc/self/exe").parent_path() / "dtrain";
  CLI::App app("Time from the start of a job until its first step is finished");
  app.add_option("--runs", runs, "measured runs");
  app.add_option("--nproc", nproc, "ranks");
  app.add_option("--program", program, "the dtrain to measure");
  app.add_option("--json", json, "file to write the figures to");
  CLI11_PARSE(app, argc, argv);

  measure(program, nproc);  // files come into memory
  std::vector<double> first_step, end, version;
  for (int i = 0; i < runs; ++i) {
    version.push_back(version_ms(program));
    const Run run = measure(program, nproc);
    first_step.push_back(run.first_step_ms);
    end.push_back(run.end_ms);
  }
  const auto show = [](const char* what, const std::vector<double>& values) {
    fmt::print("{:32} {:8.1f} ms  ({:.1f} to {:.1f}, worst {:.1f})\n", what,
               spread_of(values).median, spread_of(values).p10, spread_of(values).p90,
               *std::ranges::max_element(values));
  };
  fmt::print("{} runs of {} ranks\n", runs, nproc);
  show("first step finished", first_step);
  show("program ended", end);
  show("`dtrain version`, for comparison", version);
  fmt::print("target: first step within 150 ms\n");
  if (!json.empty()) {
    const nlohmann::ordered_json report = {{"benchmark", "launch"},
                                           {"machine", machine()},
                                           {"recipe", recipe},
                                           {"ranks", nproc},
                                           {"runs", runs},
                                           {"first_step_ms", to_json(spread_of(first_step))},
                                           {"end_ms", to_json(spread_of(end))},
                                           {"version_ms", to_json(spread_of(version))}};
    write_file_atomically(json, report.dump(2) + "\n");
  }
  return 0;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  return dtrain::run_program("bench_launch", dtrain::run, argc, argv);
}
