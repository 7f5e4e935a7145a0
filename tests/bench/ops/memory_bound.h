// Operators that memory binds, against a loop that makes the same reads and writes and nothing
// else.
#pragma once

#include <nlohmann/json.hpp>

namespace dtrain {

// [{name, microseconds, gb_per_s, share}]: share is the loop's time over the operator's.
nlohmann::ordered_json bench_memory_bound(int threads);

}  // namespace dtrain
