// Models of a few parameters, and the sum of their gradients written down plainly.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/layers.h"

namespace dtrain {

// Parameters of the given sizes; the last one registered comes first in the arena. Statistic sums
// of five channels stand at the end of its gradient arena.
class Parameters final : public Module {
 public:
  explicit Parameters(const std::vector<std::int64_t>& sizes) {
    add<BatchNorm>("norm", 5);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      add_parameter(fmt::format("p{}", i), {sizes[i]}, InitScheme::zeros, 1);
    }
  }
  Value forward(Pass&, const Value& x) const override { return x; }
};

struct Model {
  explicit Model(const std::vector<std::int64_t>& sizes) : module(sizes), layout(module) {}
  Parameters module;
  ArenaLayout layout;
};

// What virtual rank v holds at element i in a step: sums of such depend on their order.
inline float value_of(std::int64_t step, std::int64_t v, std::size_t i) {
  std::uint64_t x =
      static_cast<std::uint64_t>(v + 100 * step) * 0x9e3779b97f4a7c15 + i * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9;
  const auto mantissa = static_cast<float>((x >> 40) % 20001) - 10000.F;
  return std::ldexp(mantissa, static_cast<int>((x >> 20) % 20) - 10);
}

// Note [Order of sums], by definition: node [first, first + width) of V virtual ranks.
inline float tree_reference(std::int64_t step, std::int64_t virtual_ranks, std::int64_t first,
                            std::int64_t width, std::size_t i) {
  if (width == 1) return value_of(step, first, i);
  const std::int64_t half = width / 2;
  const float left = tree_reference(step, virtual_ranks, first, half, i);
  if (first + half >= virtual_ranks) return left;
  return left + tree_reference(step, virtual_ranks, first + half, half, i);
}

inline float tree_reference(std::int64_t step, std::int64_t virtual_ranks, std::size_t i) {
  std::int64_t width = 1;
  while (width < virtual_ranks) width *= 2;
  return tree_reference(step, virtual_ranks, 0, width, i);
}

}  // namespace dtrain
