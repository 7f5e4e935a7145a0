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

void fill_uniform(std::span<float> values, double bound, RandomSequence random) {
  for (float& value : values) value = static_cast<float>(random.uniform(-bound, bound));
}

void fill_normal(std::span<float> values, double deviation, RandomSequence random) {
  for (float& value : values) value = static_cast<float>(deviation * random.normal());
}

void fill(const Parameter& parameter, std::span<float> values, RandomSequence random) {
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
      fill_uniform(values, 1 / std::sqrt(fan_in), random);
      return;
    }
    case InitScheme::kaiming_uniform:
      fill_uniform(values, std::sqrt(6 / fans.in), random);
      return;
    case InitScheme::kaiming_normal:
      fill_normal(values, std::sqrt(2 / fans.in), random);
      return;
    case InitScheme::kaiming_normal_fan_out:
      fill_normal(values, std::sqrt(2 / fans.out), random);
      return;
    case InitScheme::xavier_uniform:
      fill_uniform(values, std::sqrt(6 / (fans.in + fans.out)), random);
      return;
    case InitScheme::xavier_normal:
      fill_normal(values, std::sqrt(2 / (fans.in + fans.out)), random);
      return;
  }
}

}  // namespace

void initialize(ParameterArena& arena, RandomKey seed) {
  for (const Parameter* parameter : arena.layout().parameters()) {
    fill(*parameter, arena.weight(*parameter),
         RandomSequence(seed.fork(RandomPurpose::weights, hash64(parameter->name))));
  }
  for (const Buffer* buffer : arena.layout().buffers()) {
    std::ranges::fill(arena.buffer(*buffer), buffer->initial);
  }
}

}  // namespace dtrain
