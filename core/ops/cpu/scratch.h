// Uninitialized memory for the length of an operator.
#pragma once

#include <cstdint>

#include "dtrain/core/ops/context.h"

namespace dtrain::ops {

// `count` elements of the context's allocator.
template <typename T>
class Scratch {
 public:
  Scratch(const OpContext& context, std::int64_t count)
      : block_(context.allocator().allocate(static_cast<std::size_t>(count) * sizeof(T),
                                            "scratch memory of an operator")) {}
  T* data() const { return static_cast<T*>(block_.data()); }

 private:
  MemoryBlock block_;
};

}  // namespace dtrain::ops
