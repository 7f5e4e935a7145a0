// Measured times and what is said about them.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

namespace dtrain {

struct Summary {
  double median = 0;
  double low = 0;   // 10th percentile
  double high = 0;  // 90th percentile
};

// Of at least one sample.
Summary summarize(std::vector<double> samples);

// Microseconds, and for `bytes` > 0 the bandwidths that nccl-tests reports, in GB/s: algbw is
// bytes / time, busbw for an all-reduce is algbw * 2 * (ranks - 1) / ranks.
nlohmann::json to_json(const Summary& seconds, double bytes, int ranks);

}  // namespace dtrain
