// Initial values of parameters, by the schemes of torch.nn.init.
#include <algorithm>
#include <cmath>

#include "dtrain/core/base/hash.h"
#include "dtrain/core/nn/arena.h"

namespace dtrain {

namespace {

// As torch.nn.init counts: a weight is [out, in, ...receptive field].
struct Fans {
  double in = 0;
  double out = 0;
};

Fans fans_of(const Parameter& parameter) {
  const Shape& shape = parameter.shape;
  if (shape.rank() < 2) {
    const double fan = static_cast<double>(std::max<std::int64_t>(1, parameter.fan_in));
    return {fan, fan};
  }
  const double field =
      static_cast<double>(shape.elements() / std::max<std::int64_t>(1, shape[0] * shape[1]));
  return {static_cast<double>(shape[1]) * field, static_cast<double>(shape[0]) * field};
}

// A run of a parameter's values, and the random numbers that are its own.
class Filler {
 public:
  Filler(std::span<float> values, RandomKey key, ThreadPool* pool)
      : values_(values), key_(key), pool_(pool) {}

  void uniform(double bound) const {
    // A number takes half a block; runs begin at whole ones.
    run([&](std::span<float> values, std::uint64_t first) {
      RandomSequence random(key_, 0, first / 2);
      for (float& value : values) value = static_cast<float>(random.uniform(-bound, bound));
    });
  }

  void normal(double deviation) const {
    run([&](std::span<float> values, std::uint64_t first) {
      RandomSequence random(key_, 0, first);
      for (float& value : values) value = static_cast<float>(deviation * random.normal());
    });
  }

 private:
  static constexpr std::int64_t run_elements = 16384;

  template <typename Body>
  void run(const Body& body) const {
    const auto size = static_cast<std::int64_t>(values_.size());
    const std::int64_t runs = (size + run_elements - 1) / run_elements;
    const auto range = [&](std::int64_t first, std::int64_t last) {
      const std::int64_t begin = first * run_elements, end = std::min(size, last * run_elements);
      if (begin < end) {
        body(
            values_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
            static_cast<std::uint64_t>(begin));
      }
    };
    if (pool_ == nullptr || runs == 1) {
      range(0, runs);
    } else {
      pool_->parallel_for(runs, range);
    }
  }

  std::span<float> values_;
  RandomKey key_;
  ThreadPool* pool_;
};

void fill(const Parameter& parameter, std::span<float> values, const Filler& random) {
  const Fans fans = fans_of(parameter);
  switch (parameter.init) {
    case InitScheme::zeros:
      std::ranges::fill(values, 0.0F);
      return;
    case InitScheme::ones:
      std::ranges::fill(values, 1.0F);
      return;
    case InitScheme::uniform_fan_in: {
      const double fan_in = parameter.fan_in > 0 ? static_cast<double>(parameter.fan_in) : fans.in;
      random.uniform(1 / std::sqrt(fan_in));
      return;
    }
    case InitScheme::kaiming_uniform:
      random.uniform(std::sqrt(6 / fans.in));
      return;
    case InitScheme::kaiming_normal:
      random.normal(std::sqrt(2 / fans.in));
      return;
    case InitScheme::kaiming_normal_fan_out:
      random.normal(std::sqrt(2 / fans.out));
      return;
    case InitScheme::xavier_uniform:
      random.uniform(std::sqrt(6 / (fans.in + fans.out)));
      return;
    case InitScheme::xavier_normal:
      random.normal(std::sqrt(2 / (fans.in + fans.out)));
      return;
    case InitScheme::normal:
      random.normal(static_cast<double>(parameter.deviation));
      return;
  }
}

}  // namespace

void initialize(ParameterArena& arena, RandomKey seed, ThreadPool* pool) {
  for (const Parameter* parameter : arena.layout().parameters()) {
    const std::span<float> values = arena.weight(*parameter);
    fill(*parameter, values,
         Filler(values, seed.fork(RandomPurpose::weights, hash64(parameter->name)), pool));
  }
  for (const Buffer* buffer : arena.layout().buffers()) {
    std::ranges::fill(arena.buffer(*buffer), buffer->initial);
  }
}

}  // namespace dtrain
