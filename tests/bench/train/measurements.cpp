#include "measurements.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/base/version.h"

namespace dtrain {

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

nlohmann::ordered_json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"p10", spread.p10}, {"p90", spread.p90}};
}

std::string to_text(const Spread& spread) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", spread.median, spread.p10, spread.p90);
}

nlohmann::ordered_json machine() {
  std::string processor = "unknown";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    processor = line.substr(line.find(':') + 2);
    break;
  }
  return {{"processor", processor},
          {"usable_cores", cpu_count().usable},
          {"version", std::string(version())},
          {"time", utc_now()}};
}

}  // namespace dtrain
