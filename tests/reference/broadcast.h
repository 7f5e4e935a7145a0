// Broadcasting and its backward, one index at a time, in plain double.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "dtrain/core/tensor/shape.h"

namespace dtrain::reference {

// Where element `index` of `shape` lies in an operand of shape `operand` that broadcasts to it.
inline std::int64_t operand_index(std::int64_t index, const Shape& shape, const Shape& operand) {
  std::int64_t result = 0;
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t at = index % shape[axis];
    index /= shape[axis];
    const int own = axis - (shape.rank() - operand.rank());
    if (own < 0) continue;
    if (operand[own] != 1) result += at * stride;
    stride *= operand[own];
  }
  return result;
}

inline std::vector<double> broadcast(const Shape& shape, const std::vector<double>& a,
                                     const Shape& shape_a, const std::vector<double>& b,
                                     const Shape& shape_b,
                                     const std::function<double(double, double)>& f) {
  std::vector<double> y(static_cast<std::size_t>(shape.elements()));
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    y[i] = f(a[operand_index(i, shape, shape_a)], b[operand_index(i, shape, shape_b)]);
  }
  return y;
}

inline std::vector<double> sum_to_shape(const std::vector<double>& x, const Shape& shape_x,
                                        const Shape& shape) {
  std::vector<double> sums(static_cast<std::size_t>(shape.elements()));
  for (std::int64_t i = 0; i < shape_x.elements(); ++i) {
    sums[operand_index(i, shape_x, shape)] += x[i];
  }
  return sums;
}

}  // namespace dtrain::reference
