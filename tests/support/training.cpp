#include "training.h"

#include <mutex>
#include <sstream>

#include "dtrain/core/ops/isa.h"
#include "dtrain/parallel/comm/local/local_group.h"
#include "dtrain/parallel/comm/local/run_ranks.h"
#include "dtrain/parallel/train/trainer.h"

namespace dtrain::test {

std::vector<nlohmann::json> TrainingRun::events(const std::string& name) const {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& line : log) {
    if (line.at("event") == name) found.push_back(line);
  }
  return found;
}

std::vector<double> TrainingRun::steps(const std::string& field) const {
  std::vector<double> values;
  for (const nlohmann::json& step : events("step")) values.push_back(step.at(field));
  return values;
}

std::string text_of(const std::filesystem::path& path) {
  return read_file(path);
}

TrainingRun train_threads(const std::string& yaml, int ranks, const std::filesystem::path& folder,
                          const std::vector<std::string>& overrides, const RunOptions& options,
                          const Registry& registry) {
  std::vector<std::string> all = overrides;
  all.push_back("output=" + folder.string());
  const Config config = parse_config(yaml, "test.yaml", folder, all, registry.kinds());
  static const std::string cpu_isa = select_cpu_isa("auto");
  prepare_output({folder}, options);
  std::filesystem::create_directories(folder);
  TrainingRun run;
  run.folder = folder;
  std::mutex mutex;
  const auto passes = make_local_group(ranks);
  run_ranks(ranks, [&](Communicator& comm) {
    const RunPlan plan = make_plan(config, registry, ranks, ranks);
    Trainer trainer(config, comm, plan, options, cpu_isa, passes[comm.rank()].get());
    RunResult result = trainer.run();
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) run.result = std::move(result);
  });
  std::istringstream lines(text_of(RunFolder{folder}.log()));
  for (std::string line; std::getline(lines, line);) run.log.push_back(nlohmann::json::parse(line));
  return run;
}

}  // namespace dtrain::test
