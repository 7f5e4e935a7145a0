// All-reduce between processes of one machine: shared memory against Gloo and against the ceiling
// that copying sets, all in turn within one run.
//
//   bench_all_reduce [--ranks 2] [--rounds 15] [--bytes N]... [--only PREFIX]... [--pin]
//                    [--json FILE]
//
// Starts the other ranks by executing itself. Sizes are in bytes; 100 MB means 1e8.
#include <algorithm>
#include <fstream>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copy_ceiling.h"
#include "gloo_peer.h"
#include "program.h"
#include "samples.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/parallel/comm/plan_tree_sum.h"
#include "dtrain/parallel/comm/shm/shm_communicator.h"
#include "dtrain/parallel/store/unix_store.h"
#include "dtrain/parallel/store/unix_store_server.h"

namespace dtrain {
namespace {

struct Options {
  int rank = 0;
  int ranks = 2;
  int rounds = 15;
  std::vector<std::size_t> sizes{4096, 65536, 1 << 20, 8 << 20, 25 << 20, 100'000'000};
  std::vector<std::string> only;  // methods whose names begin so; all if empty
  bool pin = false;
  std::string socket;
  std::string folder;
  std::string json;
};

struct Method {
  std::string name;
  std::function<void(std::size_t count)> run;
};

// Seconds of one call, from when all ranks start until all have finished, by the clock of each
// rank. Small calls are repeated.
double measure(Communicator& comm, const Method& method, std::size_t count) {
  const int calls = count * sizeof(float) <= (1 << 17)   ? 500
                    : count * sizeof(float) <= (4 << 20) ? 20
                                                         : 1;
  barrier(comm);
  const TimePoint start = Clock::now();
  for (int i = 0; i < calls; ++i) method.run(count);
  const double own = seconds_since(start) / calls;
  // The slowest rank counts.
  std::vector<double> all(static_cast<std::size_t>(comm.size()));
  InlineStream stream;
  comm.all_gather(stream, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)))
      .wait();
  return *std::ranges::max_element(all);
}

void run_rank(const Options& options) {
  UnixStore store(options.socket);
  const auto comm = make_shm_communicator(store, options.rank, options.ranks);
  const std::size_t most = *std::ranges::max_element(options.sizes);
  const auto memory = comm->allocate(2 * (most + 4096));
  auto* values = reinterpret_cast<float*>(memory->local().data());
  auto* second = values + (most + 4096) / 64 * 64 / sizeof(float);
  const TreeSum plan = plan_tree_sum(SumTree(options.ranks), options.ranks, 1, 0);
  InlineStream stream;

  std::vector<Method> methods;
  methods.push_back(
      {"shm tree_sum", [&](std::size_t n) { comm->tree_sum(stream, *memory, plan, 0, n).wait(); }});
  methods.push_back(
      {"shm all_reduce", [&](std::size_t n) { comm->all_reduce(stream, *memory, 0, n).wait(); }});
  for (const GlooAlgorithm& peer : connect_gloo(options.folder, options.rank, options.ranks)) {
    methods.push_back(
        {"gloo " + peer.name, [values, run = peer.run](std::size_t n) mutable { run(values, n); }});
  }
  // Only this thread: those of Gloo, which exist by now, go where the system puts them.
  if (options.pin) pin_to_processor(options.rank);
  for (const CopyLoop& loop : copy_loops()) {
    methods.push_back({"copy: " + loop.name, [=](std::size_t n) { loop.run(second, values, n); }});
  }

  std::erase_if(methods, [&](const Method& method) {
    return !options.only.empty() && std::ranges::none_of(options.only, [&](const auto& prefix) {
      return method.name.starts_with(prefix);
    });
  });

  nlohmann::json report{{"benchmark", "all_reduce"}, {"ranks", options.ranks}};
  for (const std::size_t bytes : options.sizes) {
    const std::size_t count = bytes / sizeof(float);
    // Sums of ones stay exact for a first check, then the values no longer matter; they are set
    // back so that none grows out of range and slows additions down.
    std::vector<std::vector<double>> samples(methods.size());
    for (int round = -1; round < options.rounds; ++round) {
      for (std::size_t m = 0; m < methods.size(); ++m) {
        std::fill_n(values, count, 0.f);
        if (round < 0 && !methods[m].name.starts_with("copy")) {
          std::fill_n(values, count, 1.f);
          barrier(*comm);
          methods[m].run(count);
          barrier(*comm);
          const auto ranks = static_cast<float>(options.ranks);
          DTRAIN_CHECK(std::all_of(values, values + count, [=](float x) { return x == ranks; }),
                       "{}: wrong sum of {} bytes", methods[m].name, bytes);
          std::fill_n(values, count, 0.f);
        }
        const double seconds = measure(*comm, methods[m], count);
        if (round >= 0) samples[m].push_back(seconds);
      }
    }
    if (options.rank != 0) continue;

    nlohmann::json entry{{"bytes", bytes}};
    const auto best = [&](const std::string& kind) {
      double least = 0;
      for (std::size_t m = 0; m < methods.size(); ++m) {
        if (!methods[m].name.starts_with(kind)) continue;
        const double median = summarize(samples[m]).median;
        least = least == 0 ? median : std::min(least, median);
      }
      return least;
    };
    fmt::print("{} bytes, {} ranks, {} rounds\n", bytes, options.ranks, options.rounds);
    for (std::size_t m = 0; m < methods.size(); ++m) {
      const Summary s = summarize(samples[m]);
      const bool sums = !methods[m].name.starts_with("copy");
      entry["methods"][methods[m].name] =
          to_json(s, sums ? static_cast<double>(bytes) : 0, options.ranks);
      fmt::print("  {:36} {:10.1f} us  ({:.1f} to {:.1f})", methods[m].name, s.median * 1e6,
                 s.low * 1e6, s.high * 1e6);
      if (sums) fmt::print("  algbw {:7.2f} GB/s", static_cast<double>(bytes) / s.median / 1e9);
      fmt::print("\n");
    }
    const double own = best("shm tree_sum");
    if (own > 0 && best("copy") > 0) {
      entry["share_of_copy_ceiling"] = best("copy") / own;
      fmt::print("  tree_sum reaches {:.0f}% of the best copy\n", 100 * best("copy") / own);
    }
    if (own > 0 && best("gloo") > 0) {
      entry["times_gloo"] = best("gloo") / own;
      fmt::print("  tree_sum is {:.1f} times as fast as the best of Gloo\n", best("gloo") / own);
    }
    report["sizes"].push_back(entry);
  }
  if (options.rank == 0 && !options.json.empty()) {
    write_file_atomically(options.json, report.dump(2) + "\n");
  }
}

pid_t start_rank(const Options& options, int rank) {
  std::vector<std::string> arguments{"bench_all_reduce",
                                     "--rank",
                                     std::to_string(rank),
                                     "--ranks",
                                     std::to_string(options.ranks),
                                     "--rounds",
                                     std::to_string(options.rounds),
                                     "--socket",
                                     options.socket,
                                     "--folder",
                                     options.folder};
  for (const std::size_t bytes : options.sizes) {
    arguments.insert(arguments.end(), {"--bytes", std::to_string(bytes)});
  }
  for (const std::string& prefix : options.only) {
    arguments.insert(arguments.end(), {"--only", prefix});
  }
  if (options.pin) arguments.push_back("--pin");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
  if (error != 0) throw DeviceError("cannot start a rank: " + errno_text(error));
  return pid;
}

int run(int argc, char** argv) {
  Options options;
  std::vector<std::size_t> sizes;
  CLI::App app("All-reduce between processes: shared memory, Gloo, and the ceiling of a copy");
  app.add_option("--ranks", options.ranks, "processes");
  app.add_option("--rounds", options.rounds, "samples of each method");
  app.add_option("--bytes", sizes, "sizes to measure");
  app.add_option("--only", options.only, "methods to measure, by how their names begin");
  app.add_flag("--pin", options.pin, "keep rank r on the r-th processor");
  app.add_option("--json", options.json, "file to write the figures to");
  app.add_option("--rank", options.rank)->group("");
  app.add_option("--socket", options.socket)->group("");
  app.add_option("--folder", options.folder)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!sizes.empty()) options.sizes = sizes;
  if (options.rank != 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_rank(options);
    return 0;
  }
  UnixStoreServer server;
  const TemporaryDirectory folder("dtrain-bench");
  options.socket = server.address();
  options.folder = folder.path().string();
  std::vector<pid_t> pids;
  for (int r = 1; r < options.ranks; ++r) pids.push_back(start_rank(options, r));
  run_rank(options);
  int failed = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  return dtrain::run_program("bench_all_reduce", dtrain::run, argc, argv);
}
