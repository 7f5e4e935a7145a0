#include "dtrain/core/nn/arena.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <sys/mman.h>
#include <utility>

#include "dtrain/core/base/hash.h"

namespace dtrain {

namespace {

constexpr std::int64_t border = 16;  // floats on a 64-byte border

std::int64_t round_up(std::int64_t elements) {
  return (elements + border - 1) / border * border;
}

// Elements of a shape if they and those `before` it are not too many.
std::int64_t checked_elements(const std::string& name, const Shape& shape, std::int64_t before) {
  std::int64_t elements = 1;
  bool fits = true;
  for (const std::int64_t size : shape.sizes()) {
    fits = fits && !__builtin_mul_overflow(elements, size, &elements);
  }
  if (!fits || elements > ArenaLayout::most_elements - before) {
    throw ConfigError(
        fmt::format("model: {} of shape {} is too large: a model has at most {} numbers; lower the "
                    "sizes under model",
                    name, to_string(shape), ArenaLayout::most_elements));
  }
  return elements;
}

}  // namespace

ArenaLayout::ArenaLayout(Module& model) : model_(&model) {
  int random_sites = 0;
  collect(model, "", random_sites);
  std::set<std::string> names;
  for (const Parameter* parameter : found_) {
    DTRAIN_CHECK(names.insert(parameter->name).second, "two parameters named '{}'",
                 parameter->name);
  }
  for (const Buffer* buffer : buffers_) {
    DTRAIN_CHECK(names.insert(buffer->name).second, "two parameters or buffers named '{}'",
                 buffer->name);
  }
  for (auto it = found_.rbegin(); it != found_.rend(); ++it) {
    Parameter& parameter = **it;
    parameter.index = static_cast<int>(parameters_.size());
    parameter.offset = weight_elements_;
    weight_elements_ +=
        round_up(checked_elements(parameter.name, parameter.shape, weight_elements_));
    parameters_.push_back(&parameter);
  }
  gradient_elements_ = weight_elements_;
  for (RunningStatistics* statistics : found_statistics_) {
    statistics->sums_offset = gradient_elements_;
    gradient_elements_ += round_up(1 + 2 * statistics->channels);
    statistics_.push_back(statistics);
  }
}

void ArenaLayout::collect(Module& module, const std::string& prefix, int& random_sites) {
  for (Module::Member& member : module.members_) {
    const std::string name = prefix + member.name;
    if (member.parameter) {
      member.parameter->name = name;
      found_.push_back(member.parameter.get());
    } else if (member.buffer) {
      member.buffer->name = name;
      member.buffer->offset = buffer_elements_;
      buffer_elements_ += round_up(checked_elements(name, member.buffer->shape, buffer_elements_));
      buffers_.push_back(member.buffer.get());
    } else {
      collect(*member.child, name + ".", random_sites);
    }
  }
  for (auto& statistics : module.statistics_) found_statistics_.push_back(statistics.get());
  for (auto& site : module.random_sites_) site->index = random_sites++;
}

std::int64_t ArenaLayout::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter* parameter : parameters_) count += parameter->elements();
  return count;
}

std::string ArenaLayout::digest() const {
  Hasher hasher;
  for (const Parameter* parameter : parameters_) {
    hasher.add(parameter->name);
    hasher.add(to_string(parameter->shape));
    hasher.add(parameter->offset);
  }
  for (const Buffer* buffer : buffers_) {
    hasher.add(buffer->name);
    hasher.add(to_string(buffer->shape));
  }
  return hasher.hex();
}

FloatBlock::FloatBlock(std::int64_t elements, BlockUse use) {
  if (elements == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  // Private pages that cannot be written count against no limit of memory, even where the kernel
  // grants none beyond what there is.
  const bool writable = use == BlockUse::read_write;
  void* const memory = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | (writable ? 0 : MAP_NORESERVE), -1, 0);
  if (memory == MAP_FAILED) {
    throw DeviceError(fmt::format("out of memory: {:.1f} MiB for model or optimizer state: {}",
                                  static_cast<double>(bytes) / (1 << 20), errno_text(errno)));
  }
  values_ = {static_cast<float*>(memory), static_cast<std::size_t>(elements)};
}

FloatBlock::FloatBlock(FloatBlock&& other) noexcept : values_(std::exchange(other.values_, {})) {}

FloatBlock::~FloatBlock() {
  if (!values_.empty()) ::munmap(values_.data(), values_.size_bytes());
}

ParameterArena::ParameterArena(const ArenaLayout& layout, BlockUse use)
    : layout_(&layout),
      weights_(layout.weight_elements(), use),
      buffers_(layout.buffer_elements(), use) {}

std::span<float> ParameterArena::weight(const Parameter& parameter) {
  return weights().subspan(parameter.offset, parameter.elements());
}

std::span<float> ParameterArena::buffer(const Buffer& buffer) {
  return buffers().subspan(buffer.offset, buffer.shape.elements());
}

std::string ParameterArena::digest() const {
  std::map<std::string, std::span<const float>> by_name;
  for (const Parameter* p : layout_->parameters()) {
    by_name[p->name] = weights().subspan(p->offset, p->elements());
  }
  for (const Buffer* b : layout_->buffers()) {
    by_name[b->name] = buffers().subspan(b->offset, b->shape.elements());
  }
  Hasher hasher;
  for (const auto& [name, values] : by_name) {
    hasher.add(name);
    hasher.add(std::as_bytes(values));
  }
  return hasher.hex();
}

void update_running_statistics(ParameterArena& arena, std::span<const float> gradients) {
  for (const RunningStatistics* statistics : arena.layout().statistics()) {
    const float* sums = gradients.data() + statistics->sums_offset;
    const float count = sums[0];
    if (count == 0) continue;  // the layer took no part in this step
    const float keep = 1 - statistics->momentum;
    const auto mean = arena.buffer(*statistics->mean);
    const auto variance = arena.buffer(*statistics->variance);
    for (std::int64_t c = 0; c < statistics->channels; ++c) {
      const float batch_mean = sums[1 + c] / count;
      const float batch_variance = sums[1 + statistics->channels + c] / count;
      mean[c] = keep * mean[c] + statistics->momentum * batch_mean;
      variance[c] = keep * variance[c] + statistics->momentum * batch_variance;
    }
  }
}

}  // namespace dtrain
