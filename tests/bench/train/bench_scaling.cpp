// Steps a second of one process on one core, which runs the virtual ranks one after the other,
// against two processes on a core each: by how much does the second process speed training up?
//
//   bench_scaling [--rounds 5] [--steps 60] [--data glyphs|synthetic] [--json FILE]
//
// The two take turns (1, 2, 1, 2, ...); the ratio is taken round by round and its median reported,
// so that a slow minute of the machine counts on both sides.

#include "measurements.h"
#include "program.h"
#include "training_steps.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

int run(int argc, char** argv) {
  Training training;
  int rounds = 5;
  std::string json;
  CLI::App app("Training on one process and core against two");
  app.add_option("--rounds", rounds, "turns of each");
  app.add_option("--steps", training.steps, "measured steps of a turn");
  app.add_option("--data", training.data, "glyphs or synthetic");
  app.add_option("--json", json, "file to write the figures to");
  app.add_option("overrides", training.overrides, "overrides of the recipe");
  CLI11_PARSE(app, argc, argv);

  std::vector<double> ratios;
  std::vector<double> step_ms[2], wait_ms[2], exposed_ms[2];
  std::string digest;
  fmt::print("{:>5}  {:>14}  {:>14}  {:>6}\n", "round", "1 process, ms", "2 processes, ms",
             "ratio");
  for (int round = 0; round < rounds; ++round) {
    double median[2];
    for (int i = 0; i < 2; ++i) {
      const MeasuredRun run = train_on(i + 1, training);
      if (digest.empty()) digest = run.digest;
      DTRAIN_CHECK(run.digest == digest, "weights {} after weights {}", run.digest, digest);
      const std::vector<double> steps = run.field("step_ms");
      median[i] = spread_of(steps).median;
      const auto append = [](std::vector<double>& to, const std::vector<double>& values) {
        to.insert(to.end(), values.begin(), values.end());
      };
      append(step_ms[i], steps);
      append(wait_ms[i], run.field("data_wait_ms"));
      append(exposed_ms[i], run.field("comm_exposed_ms"));
    }
    ratios.push_back(median[0] / median[1]);
    fmt::print("{:>5}  {:>14.2f}  {:>14.2f}  {:>6.3f}\n", round + 1, median[0], median[1],
               ratios.back());
    std::fflush(stdout);
  }
  nlohmann::ordered_json report = {{"benchmark", "scaling"},
                                   {"machine", machine()},
                                   {"recipe", recipe_of(training, "FOLDER")},
                                   {"rounds", rounds},
                                   {"weights_digest", digest}};
  for (int i = 0; i < 2; ++i) {
    fmt::print("{} process{}: step {} ms, data wait {} ms, exposed communication {} ms\n", i + 1,
               i == 0 ? "" : "es", to_text(spread_of(step_ms[i])), to_text(spread_of(wait_ms[i])),
               to_text(spread_of(exposed_ms[i])));
    report["processes"].push_back({{"processes", i + 1},
                                   {"step_ms", to_json(spread_of(step_ms[i]))},
                                   {"data_wait_ms", to_json(spread_of(wait_ms[i]))},
                                   {"comm_exposed_ms", to_json(spread_of(exposed_ms[i]))}});
  }
  const Spread speedup = spread_of(ratios);
  report["speedup"] = to_json(speedup);
  fmt::print("speed-up of the second process: {} (target: at least 1.85)\n", to_text(speedup));
  if (!json.empty()) write_file_atomically(json, report.dump(2) + "\n");
  return 0;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  return dtrain::run_program("bench_scaling", dtrain::run, argc, argv);
}
