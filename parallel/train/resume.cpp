#include "dtrain/parallel/train/resume.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include <spdlog/spdlog.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/train/gather.h"

namespace dtrain {

namespace {

// Note [What a resumed run may change]
//
// The recipe file rules: what it says is used, and each difference from the checkpoint's recipe is
// said once. Some keys give the stored numbers their meaning: the shape of the model, which sample
// stands at which position, what the optimizer's state is. Those must stay.
constexpr std::array<std::string_view, 7> fixed_keys = {
    "model", "seed", "data.train", "data.shuffle", "batch.global", "optimizer.name", "precision"};

bool is_fixed(const std::string& difference) {
  for (const std::string_view key : fixed_keys) {
    if (!difference.starts_with(key)) continue;
    const char next = difference.size() > key.size() ? difference[key.size()] : ':';
    if (next == ':' || next == '.' || next == '[') return true;
  }
  return false;
}

std::filesystem::path find_checkpoint(const RunFolder& folder, const RunOptions& options) {
  if (!options.resume_from.empty()) return resolve_checkpoint(options.resume_from);
  const auto newest = find_newest_checkpoint(folder.checkpoints());
  if (newest) return *newest;
  if (list_checkpoints(folder.checkpoints()).empty()) {
    spdlog::info("no checkpoint in {}: starting at step 0", folder.checkpoints().string());
  } else {
    spdlog::warn(
        "no checkpoint in {} is whole: starting at step 0; damaged ones stay until the run reaches "
        "their steps",
        folder.checkpoints().string());
  }
  return {};
}

// Returns the differences that are no hindrance.
std::vector<std::string> check_recipe(const checkpoint::RunState& state, const Config& config,
                                      const KindTable& kinds) {
  std::vector<std::string> allowed;
  if (state.recipe().empty()) return allowed;
  const Config before = parse_config(state.recipe(), "the checkpoint's recipe", "/", {}, kinds);
  for (const std::string& difference : recipe_differences(before.values, config.values, kinds)) {
    if (is_fixed(difference)) {
      throw ConfigError(fmt::format(
          "the checkpoint of step {} was made with another recipe: {}; a resumed run must keep "
          "it: set it back, or start a new run (--overwrite, or init.from to begin with its "
          "weights)",
          state.step(), difference));
    }
    allowed.push_back(difference);
  }
  return allowed;
}

// Returns a warning, or nothing.
std::string check_machine(const checkpoint::RunState& state, const Config& config,
                          const std::string& cpu_isa, const std::string& dataset_identity) {
  if (state.has_dataset_identity() && state.dataset_identity() != dataset_identity) {
    throw ConfigError(fmt::format(
        "data.train: the data differs from what the checkpoint of step {} was trained on (digest "
        "{}, now {}): restore the files, or start a new run",
        state.step(), state.dataset_identity(), dataset_identity));
  }
  if (!state.has_cpu_isa() || state.cpu_isa() == cpu_isa) return "";
  const std::string text =
      fmt::format("cpu_isa: the checkpoint of step {} was trained with {}, this machine uses {}",
                  state.step(), state.cpu_isa(), cpu_isa);
  if (config.values.parallel().reduction() == "fast") return text + ": the bits will differ";
  throw ConfigError(fmt::format(
      "{}: the bits would differ; resume on a machine of the first kind, set cpu_isa: {} if this "
      "one has it, or give up the promise with parallel.reduction: fast",
      text, state.cpu_isa()));
}

}  // namespace

std::optional<checkpoint::RunState> resume(Communicator& comm, const Config& config,
                                           const KindTable& kinds, const RunOptions& options,
                                           const std::string& cpu_isa,
                                           const std::string& dataset_identity, Replica& replica) {
  if (!options.resume && options.resume_from.empty()) return std::nullopt;
  std::filesystem::path path;
  std::string text;
  if (comm.rank() == 0) {
    path = find_checkpoint({config.values.output()}, options);
    if (!path.empty()) text = read_run_state(path).SerializeAsString();
  }
  text = broadcast_text(comm, text);
  if (text.empty()) return std::nullopt;
  checkpoint::RunState state;
  DTRAIN_CHECK(state.ParseFromString(text), "state of {} bytes from rank 0", text.size());
  const std::vector<std::string> differences = check_recipe(state, config, kinds);
  const std::string warning = check_machine(state, config, cpu_isa, dataset_identity);
  if (comm.rank() == 0) {
    for (const std::string& difference : differences) {
      spdlog::warn("recipe differs from the checkpoint's: {}; going on with the new value",
                   difference);
    }
    if (!warning.empty()) spdlog::warn("{}", warning);
    replica.load_weights(path / "model.safetensors", true);
    replica.load_optimizer(path / "optimizer.safetensors");
    if (replica.averages()) {
      if (std::filesystem::exists(path / average_name)) {
        replica.load_averages(path / average_name);
      } else {
        spdlog::warn("train.ema_decay: {} has no {}: the average begins with its weights",
                     path.string(), average_name);
        replica.start_averages();
      }
    }
    spdlog::info("resuming from {} (step {}, batch {})", path.string(), state.step(),
                 state.batch());
  }
  replica.broadcast(comm);
  return state;
}

bool check_resume(const Config& config, const KindTable& kinds, const RunOptions& options,
                  const std::string& cpu_isa, const std::string& dataset_identity) {
  checkpoint::RunState state;
  if (!options.resume_from.empty()) {
    state = read_run_state(resolve_checkpoint(options.resume_from));
  } else {
    const std::filesystem::path folder = RunFolder{config.values.output()}.checkpoints();
    const std::vector<std::int64_t> steps = list_checkpoints(folder);
    if (!options.resume || steps.empty()) return false;
    try {
      state = read_run_state(folder / checkpoint_name(steps.back()));
    } catch (const CheckpointError&) {
      return true;
    }
  }
  check_recipe(state, config, kinds);
  check_machine(state, config, cpu_isa, dataset_identity);
  return true;
}

void check_weights(const std::string& from, bool strict, const ArenaLayout& layout) {
  std::vector<TensorTarget> targets;
  for (const Parameter* p : layout.parameters()) {
    targets.push_back({p->name, DType::f32, p->shape, {}});
  }
  for (const Buffer* b : layout.buffers()) targets.push_back({b->name, DType::f32, b->shape, {}});
  check_tensors(resolve_weights(from), targets, strict,
                [&](std::string_view name) { return layout.name_in_model(name); });
}

void check_initial_weights(const config::Init& init, const ArenaLayout& layout) {
  if (init.from().empty()) return;
  try {
    check_weights(init.from(), init.strict(), layout);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("init.from: {}", error.what()));
  }
}

}  // namespace dtrain
