#include "dtrain/core/base/cpu_count.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sstream>

#include "dtrain/core/base/control_group.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double quota_v1(const fs::path& folder) {
  const std::string quota = first_line(folder / "cpu.cfs_quota_us");
  const std::string period = first_line(folder / "cpu.cfs_period_us");
  if (quota.empty() || period.empty()) return 0;
  return quota_from_cpu_max(quota + " " + period);
}

double quota_v2(const fs::path& folder) {
  return quota_from_cpu_max(first_line(folder / "cpu.max"));
}

// The tightest positive quota of all groups and all levels; 0 if there is none.
double cgroup_quota() {
  double tightest = 0;
  for (const ControlGroup& group : control_groups("cpu")) {
    for (const fs::path& folder : group.levels()) {
      const double quota = group.version == 2 ? quota_v2(folder) : quota_v1(folder);
      if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
    }
  }
  return tightest;
}

}  // namespace

double quota_from_cpu_max(const std::string& text) {
  std::istringstream stream(text);
  double quota = 0, period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return 0;  // "max 100000", "-1"
  return quota / period;
}

CpuCount cpu_count() {
  CpuCount count;
  // A mask of fixed size fails on machines with more processors than it holds: grow until it fits.
  for (int processors = 1024; processors <= 1 << 20; processors *= 2) {
    cpu_set_t* mask = CPU_ALLOC(processors);
    const std::size_t bytes = CPU_ALLOC_SIZE(processors);
    const bool read = ::sched_getaffinity(0, bytes, mask) == 0;
    if (read) count.affinity = std::max(1, CPU_COUNT_S(bytes, mask));
    CPU_FREE(mask);
    if (read) break;
  }
  count.quota = cgroup_quota();
  count.usable = count.affinity;
  if (count.quota > 0) {
    count.usable = std::clamp(static_cast<int>(std::ceil(count.quota)), 1, count.affinity);
  }
  return count;
}

}  // namespace dtrain
