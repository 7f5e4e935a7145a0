// How many processors this process may use: affinity mask and cgroup quota, not the machine's
// count.
#pragma once

#include <string>

namespace dtrain {

struct CpuCount {
  int usable = 1;    // min(affinity, ceil of the cgroup quota), at least 1
  int affinity = 1;  // processors in the affinity mask
  double quota = 0;  // processors that the cgroup grants; 0 if it sets no limit
};

// Reads /proc/self/cgroup and the cgroup (v1 or v2) files of each level up to the root.
CpuCount cpu_count();

// Processors granted by cgroup v2 text of cpu.max ("200000 100000" is 2); 0 if unlimited.
double quota_from_cpu_max(const std::string& text);

}  // namespace dtrain
