// What the cross-entropy kernels work on.
#pragma once

#include <cstddef>

namespace dtrain::ops {

// The options of cross_entropy as factors of a row's terms. With q = log of the probabilities, the
// loss of a row with target t is -nll * w[t] * q[t] - smooth * sum of w[c] * q[c].
struct CrossEntropyTerms {
  std::size_t classes = 0;
  const float* weights = nullptr;  // of the classes; all 1 if null
  double weight_sum = 0;           // of all classes
  double nll = 1;                  // 1 - label_smoothing
  double smooth = 0;               // label_smoothing / classes
};

}  // namespace dtrain::ops
