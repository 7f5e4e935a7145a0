#include "dtrain/core/nn/module.h"

#include <algorithm>

namespace dtrain {

Parameter& Module::add_parameter(const std::string& name, Shape shape, InitScheme init,
                                 std::int64_t fan_in, bool norm_or_bias) {
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->shape = shape;
  parameter->init = init;
  parameter->fan_in = fan_in;
  parameter->norm_or_bias = norm_or_bias;
  Parameter& reference = *parameter;
  members_.push_back({name, std::move(parameter), nullptr, nullptr});
  return reference;
}

Buffer& Module::add_buffer(const std::string& name, Shape shape, float initial) {
  auto buffer = std::make_unique<Buffer>();
  buffer->name = name;
  buffer->shape = shape;
  buffer->initial = initial;
  Buffer& reference = *buffer;
  members_.push_back({name, nullptr, std::move(buffer), nullptr});
  return reference;
}

RunningStatistics& Module::add_running_statistics(Buffer& mean, Buffer& variance, float momentum) {
  DTRAIN_CHECK(mean.shape == variance.shape && mean.shape.rank() == 1,
               "statistics of shapes {} and {}", to_string(mean.shape), to_string(variance.shape));
  statistics_.push_back(std::make_unique<RunningStatistics>());
  RunningStatistics& statistics = *statistics_.back();
  statistics.mean = &mean;
  statistics.variance = &variance;
  statistics.channels = mean.shape.elements();
  statistics.momentum = momentum;
  return statistics;
}

RandomSite& Module::add_random_site() {
  random_sites_.push_back(std::make_unique<RandomSite>());
  return *random_sites_.back();
}

void Module::add_child(const std::string& name, std::unique_ptr<Module> child) {
  const bool taken = std::ranges::any_of(members_, [&](const Member& m) { return m.name == name; });
  DTRAIN_CHECK(!taken, "two members named '{}'", name);
  members_.push_back({name, nullptr, nullptr, std::move(child)});
}

}  // namespace dtrain
