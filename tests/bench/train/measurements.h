// Measured values, and what a report of a benchmark says about them and about the machine.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace dtrain {

struct Spread {
  double median = 0;
  double p10 = 0;  // 10th percentile
  double p90 = 0;  // 90th percentile
};

// Of at least one value.
Spread spread_of(std::vector<double> values);

nlohmann::ordered_json to_json(const Spread& spread);

// "12.3 (11.9 to 13.0)"
std::string to_text(const Spread& spread);

// What a figure is worth nothing without: processor, usable cores, program version, time.
nlohmann::ordered_json machine();

}  // namespace dtrain
