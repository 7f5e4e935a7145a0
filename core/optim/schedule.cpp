#include "dtrain/core/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr std::array<std::string_view, 7> names = {"constant", "step",       "multistep", "cosine",
                                                   "linear",   "polynomial", "one_cycle"};

// From `from` at 0 to `to` at 1 along half a cosine.
double cosine_between(double from, double to, double share) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace

Schedule::Schedule(const config::Schedule& options, double lr, std::int64_t total_steps)
    : options_(options),
      lr_(lr),
      warmup_(options.warmup_steps()),
      steps_(std::max<std::int64_t>(0, total_steps - options.warmup_steps())) {
  const std::string& name = options.name();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError(fmt::format("schedule.name: '{}' is not one of {}", name,
                                  fmt::join(names.begin(), names.end(), ", ")));
  }
  if (name == "step" && options.step_size() < 1) {
    throw ConfigError("schedule.step_size: must be given, at least 1, for schedule step");
  }
  if (name == "multistep" && options.milestones_size() == 0) {
    throw ConfigError("schedule.milestones: must be given for schedule multistep");
  }
}

double Schedule::rate(std::int64_t step) const {
  if (step >= warmup_) return after_warmup(step - warmup_);
  const double share = static_cast<double>(step) / static_cast<double>(warmup_);
  const double start = options_.warmup_start();
  return lr_ * (start + (1 - start) * share);
}

double Schedule::after_warmup(std::int64_t step) const {
  const std::string& name = options_.name();
  if (name == "step") {
    return lr_ * std::pow(options_.gamma(), static_cast<double>(step / options_.step_size()));
  }
  if (name == "multistep") {
    const auto passed = std::count_if(options_.milestones().begin(), options_.milestones().end(),
                                      [step](std::int64_t at) { return at <= step; });
    return lr_ * std::pow(options_.gamma(), static_cast<double>(passed));
  }
  if (name == "one_cycle") return one_cycle(step);
  if (name == "constant") return lr_;

  // The others fall from lr to min_lr.
  const double share =
      steps_ == 0 ? 1.0 : static_cast<double>(std::min(step, steps_)) / static_cast<double>(steps_);
  const double min_lr = options_.min_lr();
  if (name == "cosine") return cosine_between(lr_, min_lr, share);
  const double power = name == "polynomial" ? options_.power() : 1.0;
  return min_lr + (lr_ - min_lr) * std::pow(1 - share, power);
}

double Schedule::one_cycle(std::int64_t step) const {
  const double max_lr = options_.has_max_lr() ? options_.max_lr() : lr_;
  const double first_lr = max_lr / options_.div_factor();
  const double last_lr = first_lr / options_.final_div_factor();
  // Both phases end on a step that has their last rate, so the run's last step has the last rate.
  const double peak = options_.pct_start() * static_cast<double>(steps_) - 1;
  const double end = static_cast<double>(steps_ - 1);
  const double at = std::min(static_cast<double>(step), end);
  if (at <= peak) return peak <= 0 ? max_lr : cosine_between(first_lr, max_lr, at / peak);
  if (end <= peak) return last_lr;
  return cosine_between(max_lr, last_lr, (at - peak) / (end - peak));
}

}  // namespace dtrain
