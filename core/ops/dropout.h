// Dropout whose mask is a function of what it is for: (seed, layer, call, batch, position of the
// sample in the global batch, element of the sample), never of a generator's state.
#pragma once

#include <cstdint>
#include <span>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// x: [N, ...]; positions: [N]. Element e of row n (e counted in [H, W, C] order in every layout)
// is kept, and divided by 1 - p, if the number from key.block(positions[n], e / 4), word e % 4, as
// unit_float, is >= p. The backward is the same function of dy.
Tensor dropout(OpContext& context, const Tensor& x, float p, RandomKey key,
               std::span<const std::int64_t> positions);

}  // namespace dtrain::ops
