#include "dtrain/core/config/resolve.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/base/text.h"
#include "dtrain/core/config/scalars.h"
#include "dtrain/core/config/schema.h"

namespace dtrain::config_internal {

namespace {

constexpr int kMaxAutoVirtualRanks = 8;
constexpr int kMaxVirtualRanks = 4096;

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// "1, 2, 4": the values nearest to `wanted`, at most eight, in order.
std::string list_near(std::vector<std::int64_t> values, std::int64_t wanted) {
  constexpr std::size_t kMost = 8;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::stable_sort(values.begin(), values.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(a - wanted) < std::abs(b - wanted);
  });
  if (values.size() > kMost) values.resize(kMost);
  std::sort(values.begin(), values.end());
  return fmt::format("{}", fmt::join(values, ", "));
}

// The multiples of `step` around `wanted`.
std::string multiples_near(std::int64_t step, std::int64_t wanted) {
  const std::int64_t below = wanted / step * step;
  std::vector<std::int64_t> values;
  if (below > 0) values.push_back(below);
  if (below + step <= std::numeric_limits<std::int32_t>::max()) values.push_back(below + step);
  return list_near(values, wanted);
}

class Resolver {
 public:
  Resolver(config::TrainConfig& recipe, const std::string& name, const Folders& folders,
           const KindTable& kinds, Given& given, std::vector<std::string>& derived,
           Problems& problems)
      : recipe_(recipe),
        name_(name),
        folders_(folders),
        kinds_(kinds),
        given_(given),
        derived_(derived),
        problems_(problems) {}

  void run() {
    set_output();
    resolve_length();
    // A section with a problem of its own holds defaults where its values should stand: comparing
    // those with others would only report consequences.
    if (clean({"batch", "parallel.virtual_ranks"})) resolve_batch();
    if (clean({"optimizer"})) resolve_optimizer();
    if (clean({"schedule", "optimizer", "train"})) resolve_schedule();
    if (clean({"loss"})) check_loss();
    if (recipe_.train().ema_decay() == 1) {
      problem("train.ema_decay", "must be less than 1: the average would never move");
    }
    if (clean({"data", "model"})) take_from_model();
    if (clean({"data"})) check_data();
    if (clean({"train", "validation", "data"})) check_validation();
  }

 private:
  bool clean(std::initializer_list<const char*> paths) const {
    return std::none_of(paths.begin(), paths.end(),
                        [&](const char* path) { return problems_.touch(path); });
  }

  bool given(const std::string& path) const { return given_.count(path) > 0; }

  // Of the key, or of what holds it.
  Place place(std::string path) const {
    while (true) {
      const auto found = given_.find(path);
      if (found != given_.end()) return found->second;
      const std::size_t dot = path.rfind('.');
      if (dot == std::string::npos) return {};
      path.resize(dot);
    }
  }

  void problem(const std::string& path, const std::string& what) {
    problems_.add(place(path), path, what);
  }

  // Of two keys that do not go together, the one that the command line changed; else the first.
  std::string blamed(const std::string& first, const std::string& second) const {
    const bool changed = place(second).on_command_line() && !place(first).on_command_line();
    return changed ? second : first;
  }

  void set_output();
  void resolve_length();
  void resolve_batch();
  void resolve_optimizer();
  void resolve_schedule();
  void check_loss();
  void take_from_model();
  void take_from_model(const std::string& path, config::DataSource& source);
  template <typename Windowed>
  void resolve_stride(const std::string& path, config::DataSource& source);
  void check_data();
  void check_source(const std::string& path, const config::DataSource& source);
  void check_validation();

  void from_global_and_micro(std::int64_t global, std::int64_t micro, std::int64_t ranks);
  void from_global_and_accumulate(std::int64_t global, std::int64_t accumulate, std::int64_t ranks);
  void from_micro_and_accumulate(std::int64_t micro, std::int64_t accumulate, std::int64_t ranks);
  void from_all(std::int64_t global, std::int64_t micro, std::int64_t accumulate,
                std::int64_t ranks);
  void store_batch(std::int64_t global, std::int64_t micro, std::int64_t accumulate,
                   std::int64_t ranks);

  config::TrainConfig& recipe_;
  const std::string& name_;
  const Folders& folders_;
  const KindTable& kinds_;
  Given& given_;
  std::vector<std::string>& derived_;
  Problems& problems_;
};

void Resolver::set_output() {
  if (recipe_.has_output()) return;
  recipe_.set_output(absolute_path(folders_.working, "runs/" + name_));
}

void Resolver::resolve_length() {
  config::Train& train = *recipe_.mutable_train();
  if (given("train.epochs") && given("train.steps")) {
    const bool epochs_override = place("train.epochs").on_command_line();
    const bool steps_override = place("train.steps").on_command_line();
    if (epochs_override == steps_override) {
      problem("train.steps", "given beside train.epochs; keep one of the two");
      return;
    }
    // The command line goes before the file, also in how the length is said.
    if (steps_override) {
      train.clear_epochs();
      given_.erase("train.epochs");
    } else {
      train.clear_steps();
      given_.erase("train.steps");
    }
  }
  if (!train.has_epochs() && !train.has_steps()) train.set_epochs(1);
}

// Note [Batch arithmetic]
//
// global = virtual_ranks * accumulate * micro. Any two of the three sizes of a batch say the third,
// given the virtual ranks; those are chosen (`auto`) only where global and micro are given, because
// otherwise the choice would change a size. All three may be given, as a resolved recipe does, if
// they agree. Whatever does not divide is an error that names the values that do.
void Resolver::resolve_batch() {
  const config::Batch& batch = recipe_.batch();
  const std::int64_t ranks = recipe_.parallel().virtual_ranks();
  const bool global = batch.has_global();
  const bool micro = batch.has_micro();
  const bool accumulate = batch.has_accumulate();
  if (global && micro && accumulate) {
    from_all(batch.global(), batch.micro(), batch.accumulate(), ranks);
  } else if (global && micro) {
    from_global_and_micro(batch.global(), batch.micro(), ranks);
  } else if (global && accumulate) {
    from_global_and_accumulate(batch.global(), batch.accumulate(), ranks);
  } else if (micro && accumulate) {
    from_micro_and_accumulate(batch.micro(), batch.accumulate(), ranks);
  } else if (global) {
    const std::int64_t wanted = std::max<std::int64_t>(1, batch.global() / kMaxAutoVirtualRanks);
    problem("batch.micro",
            fmt::format("missing beside batch.global: add batch.micro, the samples of one forward "
                        "pass ({} divide {}), or batch.accumulate with parallel.virtual_ranks",
                        list_near(divisors(batch.global()), wanted), batch.global()));
  } else if (micro) {
    problem("batch.global",
            fmt::format("missing beside batch.micro: add batch.global, the samples of a step (a "
                        "multiple of {}), or batch.accumulate with parallel.virtual_ranks",
                        batch.micro()));
  } else if (accumulate) {
    problem("batch.global",
            "missing beside batch.accumulate: add batch.global, the samples of a step, and "
            "batch.micro, those of one forward pass");
  } else {
    problem("batch",
            "give two of global, micro and accumulate, as in batch: {global: 64, micro: 8}");
  }
}

void Resolver::from_global_and_micro(std::int64_t global, std::int64_t micro, std::int64_t ranks) {
  if (global % micro != 0) {
    problem(
        "batch.micro",
        fmt::format("{} does not divide batch.global = {}: take micro = {}, or global = {}", micro,
                    global, list_near(divisors(global), micro), multiples_near(micro, global)));
    return;
  }
  const std::int64_t passes = global / micro;
  if (ranks == 0) {
    ranks = 1;
    while (ranks < kMaxAutoVirtualRanks && passes % (2 * ranks) == 0) ranks *= 2;
  }
  if (passes % ranks != 0) {
    problem("parallel.virtual_ranks",
            fmt::format("{} does not divide batch.global / batch.micro = {}: take virtual_ranks = "
                        "{}, or global = {}",
                        ranks, passes, list_near(divisors(passes), ranks),
                        multiples_near(micro * ranks, global)));
    return;
  }
  store_batch(global, micro, passes / ranks, ranks);
}

void Resolver::from_global_and_accumulate(std::int64_t global, std::int64_t accumulate,
                                          std::int64_t ranks) {
  if (ranks == 0) {
    problem("parallel.virtual_ranks",
            "must be a number where batch.micro is not given: add parallel.virtual_ranks, or give "
            "batch.global and batch.micro");
    return;
  }
  const std::int64_t passes = ranks * accumulate;
  if (global % passes != 0) {
    problem("batch.accumulate",
            fmt::format("virtual_ranks * accumulate = {} * {} does not divide batch.global = {}: "
                        "take {}global = {}",
                        ranks, accumulate, global,
                        global % ranks == 0
                            ? fmt::format("accumulate = {}, or ",
                                          list_near(divisors(global / ranks), accumulate))
                            : "",
                        multiples_near(passes, global)));
    return;
  }
  store_batch(global, global / passes, accumulate, ranks);
}

void Resolver::from_micro_and_accumulate(std::int64_t micro, std::int64_t accumulate,
                                         std::int64_t ranks) {
  if (ranks == 0) {
    problem("parallel.virtual_ranks",
            "must be a number where batch.global is not given: add parallel.virtual_ranks, or give "
            "batch.global and batch.micro");
    return;
  }
  // Each is below 2^31 and ranks below 2^13: the first product fits, the second may not.
  const std::int64_t passes = ranks * accumulate;
  if (passes > std::numeric_limits<std::int32_t>::max() / micro) {
    problem("batch.micro",
            fmt::format("virtual_ranks * accumulate * micro = {} * {} * {} samples "
                        "are more than a batch can have ({})",
                        ranks, accumulate, micro, std::numeric_limits<std::int32_t>::max()));
    return;
  }
  store_batch(passes * micro, micro, accumulate, ranks);
}

void Resolver::from_all(std::int64_t global, std::int64_t micro, std::int64_t accumulate,
                        std::int64_t ranks) {
  const bool choose = ranks == 0;
  if (choose && global % micro == 0 && (global / micro) % accumulate == 0) {
    ranks = global / micro / accumulate;
  }
  if (ranks > kMaxVirtualRanks) {
    problem("batch.accumulate",
            fmt::format("batch.global / (micro * accumulate) = {} virtual ranks are more than {}: "
                        "take a larger micro or accumulate",
                        ranks, kMaxVirtualRanks));
    return;
  }
  const bool agree = ranks > 0 && global % micro == 0 && global / micro == ranks * accumulate;
  if (!agree) {
    problem("batch.accumulate",
            fmt::format("batch.global = {} is not virtual_ranks * accumulate * micro = {} * {} * "
                        "{}: leave one of global, micro and accumulate out",
                        global, choose ? "auto" : std::to_string(ranks), accumulate, micro));
    return;
  }
  store_batch(global, micro, accumulate, ranks);
}

void Resolver::store_batch(std::int64_t global, std::int64_t micro, std::int64_t accumulate,
                           std::int64_t ranks) {
  config::Batch& batch = *recipe_.mutable_batch();
  for (const char* key : {"batch.global", "batch.micro", "batch.accumulate"}) {
    if (!given(key)) derived_.push_back(key);
  }
  if (recipe_.parallel().virtual_ranks() == 0) {
    derived_.push_back("parallel.virtual_ranks");
    given_.erase("parallel.virtual_ranks");  // "auto"
  }
  batch.set_global(static_cast<std::int32_t>(global));
  batch.set_micro(static_cast<std::int32_t>(micro));
  batch.set_accumulate(static_cast<std::int32_t>(accumulate));
  recipe_.mutable_parallel()->set_virtual_ranks(static_cast<std::int32_t>(ranks));
}

void Resolver::resolve_optimizer() {
  config::Optimizer& optimizer = *recipe_.mutable_optimizer();
  if (!optimizer.has_weight_decay()) {
    const bool decays = optimizer.name() == "adamw" || optimizer.name() == "lamb";
    optimizer.set_weight_decay(decays ? 0.01 : 0);
  }
  if (optimizer.nesterov() && optimizer.momentum() == 0) {
    problem("optimizer.nesterov", "needs optimizer.momentum above 0");
  }
  if (optimizer.nesterov() && optimizer.dampening() != 0) {
    problem("optimizer.nesterov",
            fmt::format("needs optimizer.dampening 0, found {}", real_text(optimizer.dampening())));
  }
  if (optimizer.betas_size() != 0) {
    if (optimizer.betas_size() != 2) {
      problem("optimizer.betas", fmt::format("must be two numbers such as [0.9, 0.999], found {}",
                                             optimizer.betas_size()));
    }
    for (const double beta : optimizer.betas()) {
      if (beta >= 1) {
        problem("optimizer.betas", fmt::format("must be less than 1, found {}", real_text(beta)));
        break;
      }
    }
  }
}

void Resolver::resolve_schedule() {
  config::Schedule& schedule = *recipe_.mutable_schedule();
  const double lr = recipe_.optimizer().lr();
  const std::string& name = schedule.name();
  if (name == "step" && !schedule.has_step_size()) {
    problem("schedule.step_size",
            "the key is required by schedule.name step: optimizer steps "
            "between decays");
  }
  if (name == "multistep") {
    if (schedule.milestones_size() == 0) {
      problem("schedule.milestones",
              "the key is required by schedule.name multistep: optimizer "
              "steps at which the rate decays");
    }
    for (int i = 1; i < schedule.milestones_size(); ++i) {
      if (schedule.milestones(i) <= schedule.milestones(i - 1)) {
        problem("schedule.milestones",
                fmt::format("must increase, found {} after {}", schedule.milestones(i),
                            schedule.milestones(i - 1)));
        break;
      }
    }
  }
  if (name == "one_cycle") {
    if (!schedule.has_max_lr()) schedule.set_max_lr(lr);
    if (schedule.warmup_steps() > 0) {
      problem("schedule.warmup_steps", "one_cycle rises by itself; leave the key out");
    }
  }
  if (schedule.min_lr() > lr) {
    problem("schedule.min_lr", fmt::format("must be at most optimizer.lr = {}, found {}",
                                           real_text(lr), real_text(schedule.min_lr())));
  }
  const config::Train& train = recipe_.train();
  if (train.has_steps() && schedule.warmup_steps() > train.steps()) {
    problem("schedule.warmup_steps",
            fmt::format("must be at most train.steps = {}, found {}: the rate would never reach "
                        "optimizer.lr",
                        train.steps(), schedule.warmup_steps()));
  }
}

void Resolver::check_loss() {
  const auto& weights = recipe_.loss().class_weights();
  if (!weights.empty() &&
      std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0; })) {
    problem("loss.class_weights", "must not all be 0");
  }
}

// Length of the windows, size of the vocabulary: what data and model must share stands in the
// model's section, and need not be said twice.
void Resolver::take_from_model() {
  config::Data& data = *recipe_.mutable_data();
  take_from_model("data.train", *data.mutable_train());
  resolve_stride<config::Text>("data.train", *data.mutable_train());
  resolve_stride<config::Tokens>("data.train", *data.mutable_train());
  if (!data.has_validation()) return;
  take_from_model("data.validation", *data.mutable_validation());
  resolve_stride<config::Text>("data.validation", *data.mutable_validation());
  resolve_stride<config::Tokens>("data.validation", *data.mutable_validation());
}

void Resolver::take_from_model(const std::string& path, config::DataSource& source) {
  OpenSection open = open_section(source, kinds_);
  if (!open.options) return;
  const OpenSection model = open_section(*recipe_.mutable_model(), kinds_);
  const google::protobuf::Descriptor& type = *open.options->GetDescriptor();
  const google::protobuf::Reflection& data = *open.options->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* key = type.field(i);
    if (!key_of(*key).from_model() || data.HasField(*open.options, key)) continue;
    const google::protobuf::FieldDescriptor* same =
        model.options ? model.options->GetDescriptor()->FindFieldByName(key->name()) : nullptr;
    std::int64_t value = 0;
    if (same && !same->is_repeated()) {
      const google::protobuf::Reflection& keys = *model.options->GetReflection();
      using google::protobuf::FieldDescriptor;
      if (same->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        value = keys.GetInt32(*model.options, same);
      } else if (same->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        value = keys.GetInt64(*model.options, same);
      }
    }
    const std::string key_path = join_path(path, key->name());
    if (value < 1 || value > std::numeric_limits<std::int32_t>::max()) {
      problem(key_path, fmt::format("the key is required, because model {} has no {} to take: a "
                                    "whole number ({})",
                                    recipe_.model().name(), key->name(), key_of(*key).doc()));
      continue;
    }
    data.SetInt32(open.options.get(), key, static_cast<std::int32_t>(value));
    derived_.push_back(key_path);
  }
  open.close();
}

template <typename Windowed>
void Resolver::resolve_stride(const std::string& path, config::DataSource& source) {
  if (!source.options().Is<Windowed>()) return;
  auto options = unpack<Windowed>(source.options());
  if (!options.has_context() || options.has_stride()) return;
  options.set_stride(options.context());
  source.mutable_options()->PackFrom(options);
  derived_.push_back(path + ".stride");
}

void Resolver::check_data() {
  const config::Data& data = recipe_.data();
  const config::Transforms& transforms = data.transforms();
  if (transforms.mean_size() != transforms.std_size()) {
    problem("data.transforms.std",
            fmt::format("mean has {}, std {}: give both one number per channel of the samples, or "
                        "one for all channels",
                        counted(transforms.mean_size(), "number"),
                        counted(transforms.std_size(), "number")));
  }
  check_source("data.train", data.train());
  if (data.has_validation()) check_source("data.validation", data.validation());
}

void Resolver::check_source(const std::string& path, const config::DataSource& source) {
  if (source.size().has_percent() && source.offset().has_percent() &&
      source.size().percent() + source.offset().percent() > 100) {
    problem(blamed(path + ".size", path + ".offset"),
            fmt::format("size and offset are more than all samples: {}% + {}%",
                        real_text(source.size().percent()), real_text(source.offset().percent())));
  }
  if (source.size().has_samples() && source.offset().has_samples() &&
      source.size().samples() >
          std::numeric_limits<std::int64_t>::max() - source.offset().samples()) {
    problem(blamed(path + ".size", path + ".offset"), "size + offset is beyond any data set");
  }
  if (source.options().Is<config::Csv>()) {
    const auto csv = unpack<config::Csv>(source.options());
    if (csv.separator().size() != 1) {
      problem(path + ".separator", fmt::format("must be one character such as \",\" or \"\\t\", "
                                               "found {}",
                                               shown(csv.separator())));
    }
    if (csv.classes() && csv.targets_size() != 1) {
      problem(path + ".targets", fmt::format("must be one column where classes is true, found {}",
                                             csv.targets_size()));
    }
  }
  if (source.options().Is<config::Tokens>()) {
    const auto tokens = unpack<config::Tokens>(source.options());
    constexpr std::int32_t most_of_u16 = 65536;
    if (tokens.dtype() == "u16" && tokens.vocabulary() > most_of_u16) {
      problem(blamed(path + ".dtype", path + ".vocabulary"),
              fmt::format("u16 holds ids up to 65535, but the vocabulary has {}: use dtype u32",
                          tokens.vocabulary()));
    }
  }
  if (source.options().Is<config::Synthetic>()) {
    const auto synthetic = unpack<config::Synthetic>(source.options());
    std::int64_t elements = 1;
    for (const std::int64_t extent : synthetic.shape()) {
      elements = elements > std::numeric_limits<std::int32_t>::max() ? elements : elements * extent;
    }
    if (elements > std::numeric_limits<std::int32_t>::max()) {
      problem(path + ".shape", "one sample has more than 2147483647 elements");
    }
    if (synthetic.has_tokens()) {
      if (synthetic.shape_size() != 0) {
        problem(blamed(path + ".tokens", path + ".shape"),
                "a sample has either a shape or tokens: leave one of the two out");
      }
    } else if (synthetic.shape_size() == 0) {
      problem(path, "synthetic samples need a shape, as [height, width, channels], or tokens");
    } else if (synthetic.shape_size() != 1 && synthetic.shape_size() != 3) {
      problem(path + ".shape",
              fmt::format("must be [features] or [height, width, channels], found {} numbers",
                          synthetic.shape_size()));
    }
  }
}

void Resolver::check_validation() {
  if (recipe_.data().has_validation()) return;
  if (recipe_.train().early_stop_patience() > 0) {
    problem("train.early_stop_patience", "needs data.validation, whose loss it watches");
  }
  if (recipe_.validation().every_steps() > 0) {
    problem("validation.every_steps", "needs data.validation, the samples to evaluate");
  }
}

}  // namespace

void resolve(config::TrainConfig& recipe, const std::string& name, const Folders& folders,
             const KindTable& kinds, Given& given, std::vector<std::string>& derived,
             Problems& problems) {
  Resolver(recipe, name, folders, kinds, given, derived, problems).run();
}

}  // namespace dtrain::config_internal
