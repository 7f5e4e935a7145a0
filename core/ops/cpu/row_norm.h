// What the kernels of layer norm and RMS norm work on. Null pointers stand for what is absent.
#pragma once

#include <cstddef>

namespace dtrain::ops {

struct RowNorm {
  std::size_t columns;
  const float* gamma;
  const float* beta;
  bool centered;  // layer norm: subtract the mean
  float epsilon;
};

// Rows of a chunk of the backward.
struct RowNormBackward {
  std::size_t rows;
  const float* x;
  const float* dy;
  const float* mean;
  const float* scale;
  const float* base;  // added to dx
  float* dx;          // may be base
  float* dgamma;      // sums over the rows; always there
  float* dbeta;
};

}  // namespace dtrain::ops
