#include "dtrain/core/metrics/metric.h"

namespace dtrain {

MetricSums& MetricSums::operator+=(const MetricSums& other) {
  loss += other.loss;
  loss_weight += other.loss_weight;
  samples += other.samples;
  correct += other.correct;
  correct5 += other.correct5;
  targets += other.targets;
  return *this;
}

}  // namespace dtrain
