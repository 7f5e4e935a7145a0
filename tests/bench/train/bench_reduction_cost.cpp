// What the sum of gradients over processes costs: time of a step with it against one without, two
// processes on a core each.
//
//   bench_reduction_cost [--rounds 3] [--steps 200] [--data glyphs|synthetic] [--json FILE]
//
// "Without" is a communicator whose tree_sum does nothing: ranks then follow their own gradients,
// which changes no time. Steps take turns in one run (with, without, without, with), so that both
// see the same machine. The check for non-finite numbers is made either way; its time is measured
// beside and added.

#include "measurements.h"
#include "program.h"
#include "training_steps.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/ops/elementwise.h"

namespace dtrain {
namespace {

// Whether step `step`, counted from 1, sums gradients.
bool sums_in(std::int64_t step) {
  return step % 4 < 2;
}

// Leaves out the sums of every other step.
class SometimesSumming final : public Communicator {
 public:
  SometimesSumming(Communicator& comm, int buckets)
      : Communicator(comm.rank(), comm.size()), comm_(comm), buckets_(buckets) {}

  std::unique_ptr<SharedMemory> allocate(std::size_t bytes) override {
    return comm_.allocate(bytes);
  }
  Work tree_sum(Stream& stream, SharedMemory& memory, const TreeSum& sum, std::size_t first,
                std::size_t count) override {
    const std::int64_t step = sums_++ / buckets_ + 1;
    if (sums_in(step)) return comm_.tree_sum(stream, memory, sum, first, count);
    return Work(stream.record(), nullptr);
  }
  Work all_reduce(Stream& stream, SharedMemory& memory, std::size_t offset,
                  std::size_t count) override {
    return comm_.all_reduce(stream, memory, offset, count);
  }
  Work all_gather(Stream& stream, std::span<const std::byte> in,
                  std::span<std::byte> out) override {
    return comm_.all_gather(stream, in, out);
  }
  Work broadcast(Stream& stream, std::span<std::byte> bytes, int root) override {
    return comm_.broadcast(stream, bytes, root);
  }
  void abort(const std::string& reason) override { comm_.abort(reason); }
  void set_timeout(double seconds) override { comm_.set_timeout(seconds); }
  CommStats stats() const override { return comm_.stats(); }

 private:
  Communicator& comm_;
  const int buckets_;
  std::int64_t sums_ = 0;
};

// Milliseconds of looking through that many gradients for non-finite numbers.
double finite_check_ms(std::size_t elements) {
  const std::vector<float> values(elements, 1.0F);
  std::vector<double> samples;
  for (int i = 0; i < 50; ++i) {
    const TimePoint start = Clock::now();
    if (!ops::all_finite(values)) samples.clear();
    samples.push_back(seconds_since(start) * 1e3);
  }
  return spread_of(samples).median;
}

int run(int argc, char** argv) {
  Training training;
  training.steps = 200;
  int rounds = 3;
  std::string json;
  CLI::App app("Time of a step with the sum of gradients over two processes, and without");
  app.add_option("--rounds", rounds, "runs");
  app.add_option("--steps", training.steps, "measured steps of a run");
  app.add_option("--data", training.data, "glyphs or synthetic");
  app.add_option("--json", json, "file to write the figures to");
  app.add_option("overrides", training.overrides, "overrides of the recipe");
  CLI11_PARSE(app, argc, argv);

  std::vector<double> with, without, exposed, costs;
  std::size_t elements = 0;
  for (int round = 0; round < rounds; ++round) {
    const MeasuredRun run = train_on(2, training, [](Communicator& comm, int buckets) {
      return std::make_unique<SometimesSumming>(comm, buckets);
    });
    elements = run.gradient_elements;
    std::vector<double> on, off;
    for (const nlohmann::json& step : run.steps) {
      const bool sums = sums_in(step.at("step"));
      (sums ? on : off).push_back(step.at("step_ms"));
      if (sums) exposed.push_back(step.at("comm_exposed_ms"));
    }
    with.insert(with.end(), on.begin(), on.end());
    without.insert(without.end(), off.begin(), off.end());
    costs.push_back(spread_of(on).median - spread_of(off).median);
    fmt::print("run {}: step {:.3f} ms with the sum, {:.3f} ms without\n", round + 1,
               spread_of(on).median, spread_of(off).median);
    std::fflush(stdout);
  }
  const double check_ms = finite_check_ms(elements);
  const Spread on = spread_of(with), off = spread_of(without);
  const double cost = (spread_of(costs).median + check_ms) / (off.median - check_ms);
  fmt::print("with the sum:    step {} ms, exposed communication {} ms\n", to_text(on),
             to_text(spread_of(exposed)));
  fmt::print("without:         step {} ms\n", to_text(off));
  fmt::print("check of {} gradients for non-finite numbers: {:.3f} ms\n", elements, check_ms);
  fmt::print("reduction costs {:.2f}% of the step (target: at most 5%)\n", cost * 100);
  if (!json.empty()) {
    const nlohmann::ordered_json report = {{"benchmark", "reduction_cost"},
                                           {"machine", machine()},
                                           {"recipe", recipe_of(training, "FOLDER")},
                                           {"rounds", rounds},
                                           {"step_ms_with", to_json(on)},
                                           {"step_ms_without", to_json(off)},
                                           {"comm_exposed_ms", to_json(spread_of(exposed))},
                                           {"finite_check_ms", check_ms},
                                           {"cost", cost}};
    write_file_atomically(json, report.dump(2) + "\n");
  }
  return 0;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  return dtrain::run_program("bench_reduction_cost", dtrain::run, argc, argv);
}
