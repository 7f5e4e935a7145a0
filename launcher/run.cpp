#include <algorithm>
#include <filesystem>

#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/base/system_error.h"
#include "dtrain/core/base/text.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/config/schema.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/job.h"
#include "dtrain/launcher/output_folder.h"
#include "dtrain/launcher/process.h"
#include "dtrain/parallel/store/unix_store_server.h"
#include "dtrain/parallel/train/fault.h"
#include "dtrain/parallel/train/plan.h"
#include "dtrain/parallel/train/resume.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

// Finds all that can be wrong with recipe, placement and the files to begin from before a rank
// starts. `weights`: to be evaluated, or empty.
void check_job(const Config& config, const Registry& registry, int ranks, const RunOptions& options,
               const std::string& weights) {
  const std::string cpu_isa = select_cpu_isa(config.values.cpu_isa());
  const RunPlan plan = make_plan(config, registry, ranks, ranks);
  // An evaluation keeps neither gradients nor optimizer state.
  if (const std::string shortage = memory_shortage(plan, ranks);
      weights.empty() && !shortage.empty()) {
    throw ConfigError(shortage);
  }
  if (!weights.empty()) {
    check_weights(weights, true, *plan.layout);
  } else if (!check_resume(config, registry.kinds(), options, cpu_isa,
                           plan.train_data->identity())) {
    check_initial_weights(config.values.init(), *plan.layout);
  }
  if (const char* text = ::getenv("DTRAIN_FAULT")) {
    for (const Fault& fault : parse_faults(text)) {
      if (fault.rank >= ranks) {
        throw ConfigError(fmt::format("DTRAIN_FAULT='{}': rank {} of a job of {}", text, fault.rank,
                                      counted(ranks, "process")));
      }
    }
  }
}

// --overwrite must not remove what the run begins with.
void check_not_cleared(const fs::path& output, std::string_view key, const std::string& path) {
  if (path.empty()) return;
  const fs::path inside =
      fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(output));
  if (inside.empty() || *inside.begin() == "..") return;
  throw ConfigError(fmt::format(
      "{}: {} lies in the output folder, which --overwrite clears: copy it elsewhere, or "
      "choose another output folder",
      key, path));
}

// The run must not write over what it reads.
void check_inputs_kept(const RunFolder& folder, const std::string& recipe, const Config& config) {
  const auto check = [&](std::string_view what, const std::string& path) {
    if (path.empty() || !run_writes(folder, path)) return;
    throw ConfigError(
        fmt::format("output: {} {} would be overwritten by the run's own file: choose another "
                    "output folder (now {})",
                    what, path, folder.root.string()));
  };
  check("the recipe", recipe);
  config_internal::visit_keys(
      config.values, "", config.kinds,
      [&](const std::string& key, const google::protobuf::Message& message,
          const google::protobuf::FieldDescriptor& field) {
        // init.from is read before anything is written, and has a rule of its own.
        if (!config_internal::key_of(field).path() || field.is_repeated() || key == "init.from") {
          return;
        }
        check(key, message.GetReflection()->GetString(message, &field));
      });
}

// Without an error where a part of the path cannot be looked at: who opens it says why.
bool is_missing(const fs::path& path) {
  std::error_code error;
  return fs::status(path, error).type() == fs::file_type::not_found;
}

// What training and evaluation have in common.
JobSpec rank_job(const CommandLine& line, const Config& config, int ranks) {
  JobSpec spec;
  spec.command = {own_executable(), "rank"};
  spec.ranks = ranks;
  spec.own_ranks = true;
  spec.shown = line.shown;
  spec.stop_grace = config.values.parallel().stop_grace();
  if (!line.log_dir.empty()) spec.log_folder = line.log_dir;
  return spec;
}

// The end of the job decides the exit code, whether or not it can be written down.
void end_summary(const RunFolder& folder, const std::string& status,
                 const nlohmann::ordered_json& failure) {
  try {
    write_status(folder.summary(), status, failure);
  } catch (const std::system_error& error) {
    fmt::print(stderr, "warning: {}; the summary does not tell how the run ended\n",
               system_error_text(error));
  }
}

JobEnd supervise_job(JobSpec spec, const launcher::Job& job) {
  const UniqueFd job_fd = share_job(job);
  spec.inherited.push_back(job_fd.get());
  spec.environment.push_back(fmt::format("DTRAIN_JOB_FD={}", job_fd.get()));
  const UnixStoreServer store;
  spec.store = store.address();
  return supervise(spec);
}

}  // namespace

int process_count(const CommandLine& line, const config::TrainConfig& values) {
  if (line.nproc > 0) return line.nproc;
  if (values.parallel().mode() == "single") return 1;
  const int cores =
      std::max(values.parallel().cores(), values.parallel().threads_per_virtual_rank());
  return std::clamp(cpu_count().usable / std::max(cores, 1), 1,
                    std::max(values.parallel().virtual_ranks(), 1));
}

int run_command(const CommandLine& line, const Registry& registry) {
  const Config config = load_config(line.config, line.overrides, registry.kinds());
  const int ranks = process_count(line, config.values);
  if (!line.resume_from.empty() && is_missing(line.resume_from)) {
    throw ConfigError(
        fmt::format("--resume-from {}: there is no such checkpoint; --resume goes on "
                    "from the newest of the output folder, if any",
                    line.resume_from));
  }

  RunOptions options;
  options.resume = line.resume;
  options.resume_from = line.resume_from;
  options.overwrite = line.overwrite;
  const RunFolder folder{config.values.output()};
  check_inputs_kept(folder, line.config, config);
  // Before it is searched for checkpoints. Clears nothing yet.
  OutputFolder output(folder);
  check_job(config, registry, ranks, options, "");
  if (options.overwrite) {
    check_not_cleared(folder.root, "init.from", config.values.init().from());
    check_not_cleared(folder.root, "--resume-from", options.resume_from);
  }
  output.prepare(options);

  JobSpec spec = rank_job(line, config, ranks);
  if (line.log_dir.empty()) {
    spec.log_folder = folder.root;
  } else {
    create_folder(line.log_dir, "--log-dir");
  }
  spec.append_logs = line.resume || !line.resume_from.empty();
  // Ranks hold the lock too, so that it lasts as long as anyone may write there.
  spec.inherited.push_back(output.lock_fd());
  spec.attempts = 1 + line.max_restarts;
  const auto checkpoints_before = list_checkpoints(folder.checkpoints());
  while (true) {
    const JobEnd end = supervise_job(spec, make_job(config, options));
    if (!end.failure) {
      if (end.output_error != 0) {
        fmt::print(stderr, "warning: standard output: {}; {} has every step\n",
                   errno_text(end.output_error), (folder.root / "log.jsonl").string());
      }
      if (end.forced) end_summary(folder, "stopped", {});
      return end.exit_code;
    }
    fmt::print(stderr, "{}", to_text(*end.failure));
    const bool again =
        spec.attempt + 1 < spec.attempts && end.stop_signal == 0 && end.failure->worth_restarting();
    if (!again) {
      end_summary(folder, "failed", to_json(*end.failure));
      return end.exit_code;
    }
    ++spec.attempt;
    spec.append_logs = true;
    options.overwrite = false;
    if (list_checkpoints(folder.checkpoints()) != checkpoints_before) {
      options.resume = true;
      options.resume_from.clear();
    }
    fmt::print(stderr, "starting again: attempt {} of {}\n", spec.attempt + 1, spec.attempts);
  }
}

int evaluate_command(const CommandLine& line, const Registry& registry) {
  const Config config = load_config(line.config, line.overrides, registry.kinds());
  const int ranks = process_count(line, config.values);
  launcher::Job job = make_job(config, {});
  job.set_task(launcher::Job::EVALUATE);
  job.set_weights(line.weights.empty() ? config.values.output() : line.weights);
  if (is_missing(job.weights())) {
    throw ConfigError(
        fmt::format("{}: there are no weights; --weights names a run folder, a "
                    "checkpoint or a safetensors file",
                    job.weights()));
  }
  check_job(config, registry, ranks, {}, job.weights());
  if (!line.log_dir.empty()) create_folder(line.log_dir, "--log-dir");
  const JobEnd end = supervise_job(rank_job(line, config, ranks), job);
  if (end.failure) fmt::print(stderr, "{}", to_text(*end.failure));
  return code_with_output(end);
}

}  // namespace dtrain
