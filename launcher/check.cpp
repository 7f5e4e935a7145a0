#include <algorithm>
#include <string>

#include "dtrain/core/base/text.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/exit_code.h"
#include "dtrain/parallel/train/plan.h"
#include "dtrain/parallel/train/resume.h"

namespace dtrain {

namespace {

// "1,234,567"
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > (number < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return digits;
}

std::string size_text(std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib >= 1024 ? fmt::format("{:.2f} GiB", mib / 1024) : fmt::format("{:.2f} MiB", mib);
}

std::string sample_count(std::int64_t size) {
  return size == endless ? "endless" : grouped(size) + " samples";
}

void print_recipe(const Config& config, const RunPlan& plan, const std::string& isa) {
  const config::TrainConfig& values = config.values;
  const SampleSpec& spec = plan.train_data->spec();
  fmt::print("recipe {}\n", config.source);
  fmt::print("  digest            {}\n", recipe_digest(config));
  fmt::print("  model             {}\n", values.model().name());
  fmt::print("  loss              {}\n", values.loss().name());
  fmt::print("  optimizer         {}, lr {}\n", values.optimizer().name(), values.optimizer().lr());
  fmt::print("  schedule          {}, {} steps of warm-up\n", values.schedule().name(),
             values.schedule().warmup_steps());
  fmt::print("  seed              {}\n", values.seed());
  fmt::print("  precision         {}, instruction set {}\n", values.precision(), isa);
  fmt::print("  training data     {}, {} of {}{}\n", values.data().train().kind(),
             sample_count(plan.train_data->size()), to_string(spec.input.shape),
             spec.classes > 0 ? fmt::format(" in {} classes", spec.classes) : "");
  if (plan.validation_data) {
    fmt::print("  validation data   {}, {}\n", values.data().validation().kind(),
               sample_count(plan.validation_data->size()));
  }
  fmt::print("  output            {}\n", values.output());
}

void print_model(const RunPlan& plan) {
  const std::vector<ModelRow> rows = model_table(*plan.layout);
  std::size_t name_width = 4, shape_width = 5;
  for (const ModelRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    shape_width = std::max(shape_width, to_string(row.shape).size());
  }
  fmt::print("\nmodel\n  {:<{}}  {:<{}}  {:>14}\n", "name", name_width, "shape", shape_width,
             "parameters");
  std::int64_t buffers = 0;
  for (const ModelRow& row : rows) {
    fmt::print("  {:<{}}  {:<{}}  {:>14}\n", row.name, name_width, to_string(row.shape),
               shape_width, row.buffer ? "buffer" : grouped(row.elements));
    if (row.buffer) buffers += row.elements;
  }
  fmt::print("  {:<{}}  {:<{}}  {:>14}\n", "total", name_width, "", shape_width,
             grouped(plan.layout->parameter_count()));
  if (buffers > 0) fmt::print("  and {} numbers in buffers\n", grouped(buffers));
}

void print_batches(const RunPlan& plan) {
  const BatchPlan& batches = plan.batches;
  fmt::print("\nbatches\n");
  fmt::print("  global batch      {} = {} virtual ranks x {} accumulated x {} per micro-batch\n",
             batches.global, batches.virtual_ranks, batches.accumulate, batches.micro);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::int64_t first = batches.virtual_ranks * rank / plan.ranks;
    const std::int64_t last = batches.virtual_ranks * (rank + 1) / plan.ranks;
    fmt::print(
        "  rank {:<12} virtual rank{}\n", rank,
        last - first == 1 ? fmt::format(" {}", first) : fmt::format("s {} to {}", first, last - 1));
  }
  if (batches.samples != endless) {
    fmt::print("  steps per epoch   {}\n", grouped(batches.batches_per_epoch()));
  }
  fmt::print("  steps in all      {}{}\n", grouped(plan.steps),
             plan.epochs > 0 ? fmt::format(" ({})", counted(plan.epochs, "epoch")) : "");
}

void print_placement(const RunPlan& plan) {
  fmt::print("\nplacement\n");
  fmt::print("  processes         {}, {} cores and {} lanes each\n", plan.ranks, plan.cores,
             plan.lanes);
  fmt::print("memory of a process, estimated\n");
  fmt::print("  weights           {}\n", size_text(plan.weight_bytes));
  fmt::print("  optimizer         {}\n", size_text(plan.optimizer_bytes));
  fmt::print("  gradients         {} (shared memory)\n", size_text(plan.gradient_bytes));
  fmt::print("  activations       {}\n", size_text(plan.activation_bytes));
  fmt::print("  total             {}\n", size_text(plan.process_bytes()));
  fmt::print("\ngradient buckets (plan {})\n", plan.buckets.digest());
  const std::string buckets = to_string(plan.buckets, *plan.layout);
  for (std::size_t start = 0; start < buckets.size();) {
    const std::size_t end = std::min(buckets.find('\n', start), buckets.size());
    fmt::print("  {}\n", buckets.substr(start, end - start));
    start = end + 1;
  }
}

}  // namespace

int check_command(const CommandLine& line, const Registry& registry) {
  const Config config = load_config(line.config, line.overrides, registry.kinds());
  const int ranks = process_count(line, config.values);
  const std::string isa = select_cpu_isa(config.values.cpu_isa());
  const RunPlan plan = make_plan(config, registry, ranks, ranks);
  check_initial_weights(config.values.init(), *plan.layout);
  print_recipe(config, plan, isa);
  print_model(plan);
  print_batches(plan);
  print_placement(plan);
  for (const std::string& warning : plan.warnings) fmt::print("\nwarning: {}\n", warning);
  const std::string shortage = memory_shortage(plan, ranks);
  if (!shortage.empty()) fmt::print("\nwarning: {}\n", shortage);
  return exit_code::done;
}

}  // namespace dtrain
