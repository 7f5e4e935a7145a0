#include "training_steps.h"

#include <sstream>

#include "rank_processes.h"
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include "dtrain/core/base/files.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/parallel/train/trainer.h"

namespace dtrain {

std::string recipe_of(const Training& training, const std::filesystem::path& folder) {
  const bool glyphs = training.data == "glyphs";
  return fmt::format(R"(
output: {}
seed: 42
model: {{name: convnet, channels: [32, 64], hidden: 128, classes: 10}}
data: {{train: {{kind: {}, size: 60000{}}}}}
batch: {{global: 256, micro: 32}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 1e-4}}
train: {{steps: {}}}
parallel: {{virtual_ranks: 2, cores: 1}}
checkpoint: {{every_steps: 0}}
log: {{every_steps: 1000000}}
)",
                     folder.string(), training.data,
                     glyphs ? "" : ", shape: [28, 28, 1], classes: 10",
                     training.warmup + training.steps);
}

std::vector<double> MeasuredRun::field(const std::string& name) const {
  std::vector<double> values;
  for (const nlohmann::json& step : steps) values.push_back(step.at(name));
  return values;
}

MeasuredRun train_on(int ranks, const Training& training, const Decorate& decorate) {
  // As the launcher starts ranks.
  ::setenv("OMP_DYNAMIC", "false", 1);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  const TemporaryDirectory folder("dtrain-bench");
  const Registry registry = builtin_registry();
  const Config config = parse_config(recipe_of(training, folder.path()), "benchmark", folder.path(),
                                     training.overrides, registry.kinds());
  MeasuredRun run;
  run.gradient_elements = static_cast<std::size_t>(
      make_plan(config, registry, ranks, ranks).layout->gradient_elements());
  run_processes(ranks, [&](Communicator& comm) {
    // Each rank is bound to one processor, which it would warn about.
    spdlog::set_level(spdlog::level::err);
    const std::string cpu_isa = select_cpu_isa("auto");
    const RunPlan plan = make_plan(config, registry, ranks, ranks);
    const auto decorated =
        decorate ? decorate(comm, static_cast<int>(plan.buckets.buckets.size())) : nullptr;
    Trainer trainer(config, decorated ? *decorated : comm, plan, {}, cpu_isa);
    trainer.run();
  });
  std::istringstream lines(read_file(RunFolder{folder.path()}.log()));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json event = nlohmann::json::parse(line);
    if (event.at("event") == "end") run.digest = event.at("weights_digest");
    if (event.at("event") == "step" && event.at("step") > training.warmup) {
      run.steps.push_back(std::move(event));
    }
  }
  return run;
}

}  // namespace dtrain
