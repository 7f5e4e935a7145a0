// Loops of an operator on the threads of its context.
//
// Which thread runs a part never changes a result: parts are independent, and sums are taken per
// part and added in order afterwards.
#pragma once

#include <cstdint>
#include <functional>

#include "dtrain/core/ops/context.h"

namespace dtrain::ops {

// Elements that are worth a thread of their own.
inline constexpr std::int64_t elements_per_thread = 16384;

// Cuts [0, count) into at most context.threads() contiguous ranges whose borders are multiples of
// `grain` (but for the last) and runs them side by side. Rethrows the first exception.
void parallel_ranges(const OpContext& context, std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t first, std::int64_t last)>& body);

}  // namespace dtrain::ops
