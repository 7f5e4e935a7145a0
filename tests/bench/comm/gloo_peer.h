// All-reduce by Gloo, over its TCP transport on the loopback: what the shared memory is compared
// with.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace dtrain {

struct GlooAlgorithm {
  std::string name;
  std::function<void(float* values, std::size_t count)> run;
};

// Connects the ranks through files in `folder`. Empty if this build has no Gloo.
std::vector<GlooAlgorithm> connect_gloo(const std::string& folder, int rank, int ranks);

}  // namespace dtrain
