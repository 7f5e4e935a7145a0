// Metrics as (sum, count) pairs in double, added in tree order and divided once: exact for any
// split of the samples.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace dtrain {

// What one evaluation or step adds up.
struct MetricSums {
  double loss = 0;         // sum of the loss over valid targets (weighted as the loss is)
  double loss_weight = 0;  // what `loss` is divided by: valid targets, or their class weights
  double samples = 0;      // samples seen
  double correct = 0;      // top-1 hits
  double correct5 = 0;     // top-5 hits
  double targets = 0;      // label targets judged; 0 for regression

  MetricSums& operator+=(const MetricSums& other);
  double mean_loss() const { return loss_weight > 0 ? loss / loss_weight : 0; }
  // Of cross entropy, in nats per target.
  double perplexity() const { return std::exp(mean_loss()); }
  double bits_per_byte(double bytes_per_target) const {
    return mean_loss() / std::numbers::ln2 / bytes_per_target;
  }
  double accuracy() const { return targets > 0 ? correct / targets : 0; }
  double accuracy5() const { return targets > 0 ? correct5 / targets : 0; }
};

}  // namespace dtrain
