// Dropout, one element at a time.
#pragma once

#include <cstdint>

#include "dtrain/core/random/philox.h"

namespace dtrain::reference {

// Whether element e of the sample at this position of the batch is kept.
inline bool dropout_keeps(RandomKey key, std::int64_t position, std::int64_t e, float p) {
  const auto words =
      key.block(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(e / 4));
  return unit_float(words[static_cast<std::size_t>(e % 4)]) >= p;
}

}  // namespace dtrain::reference
