#include "dtrain/core/optim/gradient_norm.h"

#include <algorithm>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/reduce.h"

namespace dtrain {

double squared_norm(std::span<const float> gradients, std::span<const ParameterRange> parameters,
                    ThreadPool& pool) {
  return squared_norms(gradients, parameters, 0, pool).all;
}

SquaredNorms squared_norms(std::span<const float> gradients,
                           std::span<const ParameterRange> parameters, int groups,
                           ThreadPool& pool) {
  // All parameters' blocks in a row.
  std::vector<ParameterRange> blocks;
  for (const ParameterRange& parameter : parameters) {
    DTRAIN_CHECK(
        parameter.offset >= 0 && parameter.size >= 0 &&
            parameter.offset + parameter.size <= static_cast<std::int64_t>(gradients.size()),
        "parameter of {} at {} in {} gradients", parameter.size, parameter.offset,
        gradients.size());
    for (std::int64_t at = 0; at < parameter.size; at += ops::block_elements) {
      blocks.push_back({parameter.offset + at, std::min(ops::block_elements, parameter.size - at),
                        parameter.group});
    }
  }
  std::vector<double> sums(blocks.size());
  pool.parallel_for(static_cast<std::int64_t>(blocks.size()),
                    [&](std::int64_t first, std::int64_t last) {
                      for (std::int64_t i = first; i < last; ++i) {
                        const auto index = static_cast<std::size_t>(i);
                        sums[index] = ops::block_sum_of_squares(
                            gradients.subspan(static_cast<std::size_t>(blocks[index].offset),
                                              static_cast<std::size_t>(blocks[index].size)));
                      }
                    });
  SquaredNorms norms{.groups = std::vector<double>(static_cast<std::size_t>(groups))};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    norms.all += sums[i];
    if (groups > 0) norms.groups[static_cast<std::size_t>(blocks[i].group)] += sums[i];
  }
  return norms;
}

float clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient > 1 ? 1.0f : static_cast<float>(coefficient);
}

}  // namespace dtrain
