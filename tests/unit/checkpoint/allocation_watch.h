// Sees every allocation of the program it is linked into, by replacing operator new.
#pragma once

#include <cstddef>

namespace dtrain {

// Bytes of the largest single allocation since the last call of reset_largest_allocation.
std::size_t largest_allocation();
void reset_largest_allocation();

}  // namespace dtrain
