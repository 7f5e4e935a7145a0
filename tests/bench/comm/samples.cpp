#include "samples.h"

#include <algorithm>

namespace dtrain {

Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

nlohmann::json to_json(const Summary& seconds, double bytes, int ranks) {
  nlohmann::json out{{"median_us", seconds.median * 1e6},
                     {"p10_us", seconds.low * 1e6},
                     {"p90_us", seconds.high * 1e6}};
  if (bytes > 0) {
    const double algorithm = bytes / seconds.median / 1e9;
    out["algbw_gb_s"] = algorithm;
    out["busbw_gb_s"] = algorithm * 2 * (ranks - 1) / ranks;
  }
  return out;
}

}  // namespace dtrain
