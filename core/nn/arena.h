// Where each parameter stands: parameters, gradients and optimizer state are each one contiguous
// block with the same offsets, so that a gradient bucket is a slice and an update is one sweep.
//
//   ArenaLayout layout(model);                    // once; names and places the model's parameters
//   ParameterArena arena(layout);
//   initialize(arena, RandomKey(seed));
//
// Parameters lie in reverse of registration order, which is the order in which backward finishes
// them, each on a 64-byte border. Behind them, in gradient arenas only, lie the sums of running
// statistics (Note [Running statistics]).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/autograd/parameter.h"
#include "dtrain/core/base/thread_pool.h"
#include "dtrain/core/nn/module.h"
#include "dtrain/core/random/philox.h"

namespace dtrain {

class ArenaLayout {
 public:
  // 4 TiB of weights: no machine holds that, and an address space has room for it.
  static constexpr std::int64_t most_elements = std::int64_t{1} << 40;

  // Assigns names, indices and offsets to the descriptions inside `model`, which must outlive it.
  // Throws ConfigError, with the parameter's name and shape, for a model of more than
  // `most_elements`.
  explicit ArenaLayout(Module& model);

  // In arena order; parameters()[i]->index == i.
  std::span<const Parameter* const> parameters() const { return parameters_; }
  std::span<const Buffer* const> buffers() const { return buffers_; }
  std::span<const RunningStatistics* const> statistics() const { return statistics_; }

  std::int64_t weight_elements() const { return weight_elements_; }  // with padding
  std::int64_t buffer_elements() const { return buffer_elements_; }
  // Weights, then statistic sums.
  std::int64_t gradient_elements() const { return gradient_elements_; }
  std::int64_t parameter_count() const;  // learned numbers, without padding

  // Module::name_in_model of the model.
  std::string name_in_model(std::string_view name_in_file) const {
    return model_->name_in_model(name_in_file);
  }

  // Digest of names, shapes and offsets.
  std::string digest() const;

 private:
  void collect(Module& module, const std::string& prefix, int& random_sites);

  const Module* model_;
  std::vector<const Parameter*> parameters_;
  std::vector<const Buffer*> buffers_;
  std::vector<const RunningStatistics*> statistics_;
  std::vector<Parameter*> found_;  // in registration order
  std::vector<RunningStatistics*> found_statistics_;
  std::int64_t weight_elements_ = 0;
  std::int64_t buffer_elements_ = 0;
  std::int64_t gradient_elements_ = 0;
};

// What a block of floats may be used for.
enum class BlockUse {
  read_write,
  // Zeros that are never written: they take address space and no memory, of any size.
  read_only
};

// Zeroed floats on a page border. Pages that are never touched take no memory. Throws DeviceError.
class FloatBlock {
 public:
  explicit FloatBlock(std::int64_t elements, BlockUse use = BlockUse::read_write);
  FloatBlock(FloatBlock&& other) noexcept;
  FloatBlock& operator=(FloatBlock&&) = delete;
  ~FloatBlock();
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }

 private:
  std::span<float> values_;
};

// The values of a replica: weights and buffers.
class ParameterArena {
 public:
  explicit ParameterArena(const ArenaLayout& layout, BlockUse use = BlockUse::read_write);

  const ArenaLayout& layout() const { return *layout_; }
  std::span<float> weights() { return weights_.values(); }
  std::span<const float> weights() const { return weights_.values(); }
  std::span<float> buffers() { return buffers_.values(); }
  std::span<const float> buffers() const { return buffers_.values(); }
  std::span<float> weight(const Parameter& parameter);
  std::span<float> buffer(const Buffer& buffer);

  // XXH3-128 of all parameters and buffers in name order.
  std::string digest() const;

 private:
  const ArenaLayout* layout_;
  FloatBlock weights_;
  FloatBlock buffers_;
};

// Fills weights by each parameter's scheme and buffers by their initial value. A parameter's
// numbers depend on the key and its name only, not on the threads of `pool`, if there is one.
void initialize(ParameterArena& arena, RandomKey seed, ThreadPool* pool = nullptr);

// Moves the running statistics once, from the pooled sums at the end of a reduced gradient arena.
void update_running_statistics(ParameterArena& arena, std::span<const float> gradients);

}  // namespace dtrain
