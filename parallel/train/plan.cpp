#include "dtrain/parallel/train/plan.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/base/text.h"
#include "dtrain/core/nn/loss.h"
#include "dtrain/core/optim/optimizer.h"
#include "dtrain/data/transforms.h"
#include "dtrain/parallel/reduce/reducer.h"
#include "dtrain/parallel/train/recipe.h"

namespace dtrain {

namespace {

constexpr long most_cores = 4096;

// Steps are counted in JSON and in doubles: up to here both are exact.
constexpr std::int64_t most_steps = std::int64_t{1} << 53;

// Cores of a process: the recipe's, or OMP_NUM_THREADS, or an equal share of this machine's.
int cores_of_process(const config::Parallel& parallel, int local_ranks, int usable) {
  if (parallel.cores() > 0) return parallel.cores();
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text != nullptr && *text != '\0') {
    // OpenMP's list for nested levels: the first is that of the outermost.
    char* end = nullptr;
    const long cores = std::strtol(text, &end, 10);
    if (end == text || (*end != '\0' && *end != ',') || cores < 1 || cores > most_cores) {
      throw ConfigError(
          fmt::format("OMP_NUM_THREADS='{}': dtrain takes it for the cores of a process, a number "
                      "from 1 to {}: change or unset it, or set parallel.cores",
                      text, most_cores));
    }
    return static_cast<int>(cores);
  }
  return std::max(1, usable / local_ranks);
}

void check_ranks(const config::Parallel& parallel, std::int64_t virtual_ranks, int ranks) {
  if (parallel.mode() == "single" && ranks > 1) {
    throw ConfigError(fmt::format(
        "parallel.mode: single runs one process, but --nproc is {}: use mode ddp or --nproc 1",
        ranks));
  }
  if (ranks > virtual_ranks) {
    throw ConfigError(fmt::format(
        "--nproc {}: the recipe has {} virtual ranks, so 1 to {} processes can share them; use "
        "--nproc {}, or another recipe with parallel.virtual_ranks of at least {}",
        ranks, virtual_ranks, virtual_ranks, virtual_ranks, ranks));
  }
}

// What the model makes of a batch without samples: the shape of its outputs, and the elements per
// sample that a micro-batch keeps until its backward.
struct Trial {
  Shape outputs;
  std::int64_t row_elements = 0;
};

Trial try_model(const Module& model, const ArenaLayout& layout, const FieldSpec& sample) {
  Allocator allocator("trial");
  OpContext context(allocator, 1);
  const ParameterArena arena(layout, BlockUse::read_only);
  Pass pass(context,
            {.weights = arena.weights(),
             .buffers = arena.buffers(),
             .gradients = {},
             .parameters = layout.parameters()},
            {.training = true});
  std::vector<std::int64_t> sizes = {0};
  sizes.insert(sizes.end(), sample.shape.sizes().begin(), sample.shape.sizes().end());
  const Value outputs = model.forward(
      pass, pass.input(Tensor::empty(Shape(sizes), sample.dtype, allocator, "trial")));
  return {outputs.shape(), pass.recorded_row_elements()};
}

void check_targets(const Loss& loss, const std::string& loss_name, const SampleSpec& spec,
                   const Shape& outputs, int class_weights) {
  if (loss.wants_labels()) {
    if (spec.classes == 0) {
      throw ConfigError(fmt::format(
          "loss.name: {} wants class labels, but the data's targets are numbers of shape {}: use "
          "mse or bce, or (csv) data.train.classes: true",
          loss_name, to_string(spec.target.shape)));
    }
    // Outputs are [N, C] for targets [N], [N, T, C] for targets [N, T].
    const std::int64_t targets = spec.target.shape.elements();
    const std::int64_t classes = outputs.rank() < 2 ? 0 : outputs[outputs.rank() - 1];
    if (outputs.rank() != spec.target.shape.rank() + 2 || classes < spec.classes ||
        outputs.elements_per_row() != targets * classes) {
      throw ConfigError(fmt::format(
          "model: its outputs are {} per sample, but the data has {}{} classes: give the model "
          "that many outputs",
          outputs.elements_per_row(), targets == 1 ? "" : fmt::format("{} targets of ", targets),
          spec.classes));
    }
    if (class_weights > 0 && class_weights != classes) {
      throw ConfigError(
          fmt::format("loss.class_weights: {} weights for {} outputs", class_weights, classes));
    }
    return;
  }
  if (spec.classes != 0) {
    throw ConfigError(fmt::format(
        "loss.name: {} wants numbers as targets, but the data's targets are class labels: use "
        "cross_entropy",
        loss_name));
  }
  if (outputs.elements_per_row() != spec.target.shape.elements()) {
    throw ConfigError(fmt::format(
        "model: its outputs are {} per sample, but the data's targets are {}: they must be equally "
        "many",
        outputs.elements_per_row(), spec.target.shape.elements()));
  }
}

void set_length(const config::Train& train, RunPlan& plan) {
  if (train.has_steps()) {
    plan.steps = train.steps();
    if (plan.steps > most_steps) {
      throw ConfigError(fmt::format("train.steps: {} steps are more than a run can have ({})",
                                    plan.steps, most_steps));
    }
    return;
  }
  if (plan.batches.samples == endless) {
    throw ConfigError("train.epochs: the data has no end; give train.steps instead");
  }
  const std::int64_t batches = plan.batches.batches_per_epoch();
  plan.epochs = train.epochs();
  if (plan.epochs > most_steps / batches) {
    throw ConfigError(
        fmt::format("train.epochs: {} epochs of {} are more steps than a run can have ({}): "
                    "at most {} epochs",
                    plan.epochs, counted(batches, "step"), most_steps, most_steps / batches));
  }
  plan.steps = plan.epochs * batches;
}

// Training and validation data that are the same, or share samples: the validation then says less
// than it seems to.
std::string overlap_warning(const Dataset& train, const Dataset& validation) {
  const Extent a = train.extent(0, train.size());
  const Extent b = validation.extent(0, validation.size());
  const std::int64_t first = std::max(a.first, b.first);
  const std::int64_t last = std::min(a.last, b.last);
  if (a.content != b.content || first >= last) return "";
  if (a.first == b.first && a.last == b.last) {
    return "data.validation: is the same data as data.train: its loss says nothing about new data";
  }
  return fmt::format(
      "data.validation: {:.3g}% of it is in data.train too, so its loss says less about new data: "
      "give the parts sizes and offsets that do not meet",
      100.0 * static_cast<double>(last - first) / static_cast<double>(b.last - b.first));
}

// Settings that work, but hardly as they were meant.
void warn_of_oddities(const config::TrainConfig& values, const Loss& loss, const Shape& outputs,
                      RunPlan& plan) {
  if (values.data().workers() > plan.cores) {
    plan.warnings.push_back(
        fmt::format("data.workers: {} loader threads share the {} of a process with the "
                    "training: fewer are likely as fast",
                    values.data().workers(), counted(plan.cores, "core")));
  }
  if (values.schedule().warmup_steps() > plan.steps) {
    plan.warnings.push_back(
        fmt::format("schedule.warmup_steps: {} is more than the {} steps of the run: the rate will "
                    "never reach optimizer.lr",
                    values.schedule().warmup_steps(), plan.steps));
  }
  if (loss.wants_labels() && outputs[-1] == 1) {
    plan.warnings.push_back(fmt::format(
        "loss.name: {} with a single class is 0 whatever the weights: nothing will be learned",
        values.loss().name()));
  }
}

}  // namespace

RunPlan make_plan(const Config& config, const Registry& registry, int ranks, int local_ranks) {
  const config::TrainConfig& values = config.values;
  RunPlan plan;
  plan.ranks = ranks;
  check_ranks(values.parallel(), values.parallel().virtual_ranks(), ranks);

  const bool skip_bad = values.data().on_bad_sample() == "skip";
  plan.train_data = registry.datasets.create(values.data().train(), "data.train", skip_bad);
  if (values.data().has_validation()) {
    plan.validation_data =
        registry.datasets.create(values.data().validation(), "data.validation", skip_bad);
    const SampleSpec& a = plan.train_data->spec();
    const SampleSpec& b = plan.validation_data->spec();
    if (a.input.shape != b.input.shape || a.input.dtype != b.input.dtype ||
        a.target.shape != b.target.shape) {
      throw ConfigError(fmt::format(
          "data.validation: samples are {} with targets {}, but those of data.train are {} with {}",
          to_string(b.input.shape), to_string(b.target.shape), to_string(a.input.shape),
          to_string(a.target.shape)));
    }
  }
  if (plan.validation_data) {
    const std::string warning = overlap_warning(*plan.train_data, *plan.validation_data);
    if (!warning.empty()) plan.warnings.push_back(warning);
  }
  const SampleSpec& spec = plan.train_data->spec();
  plan.model = registry.models.create(values.model(), {.shape = spec.input.shape,
                                                       .classes = spec.classes,
                                                       .target = spec.target.shape,
                                                       .dtype = spec.input.dtype});
  plan.layout = std::make_unique<ArenaLayout>(*plan.model);
  if (plan.layout->parameters().empty()) {
    throw ConfigError(fmt::format("model '{}' has no parameters to train", values.model().name()));
  }

  const Trial trial = try_model(*plan.model, *plan.layout, spec.input);
  const auto loss = make_loss(loss_options(values.loss()));
  check_targets(*loss, values.loss().name(), spec, trial.outputs,
                values.loss().class_weights_size());
  plan.nominal_targets =
      static_cast<double>(values.batch().global()) *
      static_cast<double>(loss->wants_labels() ? spec.target.shape.elements()
                                               : trial.outputs.elements_per_row());
  // Transforms that do not fit the samples are found here too.
  const Transforms transforms(values.data().transforms(), spec, values.seed());

  plan.batches = {.samples = plan.train_data->size(),
                  .global = values.batch().global(),
                  .micro = values.batch().micro(),
                  .accumulate = values.batch().accumulate(),
                  .virtual_ranks = values.parallel().virtual_ranks()};
  plan.validation_batches = plan.batches;
  plan.validation_batches.samples = plan.validation_data ? plan.validation_data->size() : 0;
  set_length(values.train(), plan);

  const CpuCount cpus = cpu_count();
  const int threads = values.parallel().threads_per_virtual_rank();
  plan.cores = cores_of_process(values.parallel(), local_ranks, cpus.usable);
  const auto widest = static_cast<int>((plan.batches.virtual_ranks + plan.ranks - 1) / plan.ranks);
  plan.synchronized =
      std::ranges::any_of(plan.layout->statistics(), [](const auto* s) { return s->synchronized; });
  // Note [Meeting in a pass]
  plan.lanes = plan.synchronized ? widest : std::clamp(plan.cores / threads, 1, widest);
  plan.buckets = make_bucket_plan(
      *plan.layout, static_cast<std::int64_t>(values.parallel().bucket_mb() * (1 << 20)));

  if (plan.cores < threads) {
    plan.warnings.push_back(fmt::format(
        "a process has {} cores, but each virtual rank computes with {} threads: they share the "
        "cores; lower parallel.threads_per_virtual_rank (another recipe) or --nproc",
        plan.cores, threads));
  } else if (widest * threads < plan.cores) {
    plan.warnings.push_back(fmt::format(
        "{} of the {} cores of each process stay idle: a process has {} virtual ranks of {} "
        "threads; raise parallel.virtual_ranks or parallel.threads_per_virtual_rank (both another "
        "recipe), or --nproc",
        plan.cores - widest * threads, plan.cores, widest, threads));
  }
  const int wanted = local_ranks * std::max(plan.cores, threads);
  if (wanted > cpus.usable) {
    plan.warnings.push_back(fmt::format(
        "{} of {} want {} of {} usable cores: they share them; lower --nproc or "
        "parallel.cores",
        counted(local_ranks, "process"), counted(plan.cores, "core"), wanted, cpus.usable));
  }

  warn_of_oddities(values, *loss, trial.outputs, plan);

  const int copies = values.train().ema_decay() > 0 ? 2 : 1;
  plan.weight_bytes =
      sizeof(float) * copies * (plan.layout->weight_elements() + plan.layout->buffer_elements());
  plan.optimizer_bytes = sizeof(float) * plan.layout->weight_elements() *
                         make_optimizer(values.optimizer())->state_names().size();
  const Reduction reduction = reduction_named(values.parallel().reduction());
  int slots = 0;  // ranks own ranges of different sizes and alignments
  for (int rank = 0; rank < ranks; ++rank) {
    slots = std::max(slots, Reducer::slots_needed(plan.batches.virtual_ranks, rank, ranks,
                                                  plan.lanes, reduction));
  }
  plan.gradient_bytes = sizeof(float) * plan.layout->gradient_elements() * slots;
  plan.activation_bytes =
      sizeof(float) * plan.lanes * std::min(plan.batches.micro, plan.batches.samples) *
      static_cast<std::uint64_t>(trial.row_elements + spec.input.shape.elements());
  return plan;
}

std::string memory_shortage(const RunPlan& plan, int local_ranks,
                            const AvailableMemory& available) {
  if (plan.process_bytes() <= available.bytes / static_cast<std::uint64_t>(local_ranks)) return "";
  return fmt::format(
      "not enough memory: {} of {} each (weights {}, optimizer {}, gradients {}, "
      "activations {}), but {} are left ({}): lower the sizes under model, batch.micro or "
      "parallel.virtual_ranks (another recipe), or --nproc or parallel.cores",
      counted(local_ranks, "process"), mebibytes(plan.process_bytes()),
      mebibytes(plan.weight_bytes), mebibytes(plan.optimizer_bytes), mebibytes(plan.gradient_bytes),
      mebibytes(plan.activation_bytes), mebibytes(available.bytes), available.limit);
}

std::vector<ModelRow> model_table(const ArenaLayout& layout) {
  std::vector<ModelRow> rows;
  const auto parameters = layout.parameters();
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    rows.push_back({(*it)->name, (*it)->shape, (*it)->elements(), false});
  }
  for (const Buffer* buffer : layout.buffers()) {
    rows.push_back({buffer->name, buffer->shape, buffer->shape.elements(), true});
  }
  return rows;
}

}  // namespace dtrain
