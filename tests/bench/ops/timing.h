// Times of short calls.
#pragma once

#include <functional>
#include <vector>

namespace dtrain {

// Seconds of the one thread that computes, which neighbours disturb least, or of the wall clock for
// a team.
double seconds_now(int threads);

struct Timing {
  double median;  // seconds
  double spread;  // (90th - 10th percentile) / median
};

Timing summarize(std::vector<double> seconds);

// After warm-up, for a fifth of a second and at least nine times.
Timing measure(int threads, const std::function<void()>& body);

// The same of two bodies that take turns.
struct TimingPair {
  Timing first;
  Timing second;
};
TimingPair measure_in_turn(int threads, const std::function<void()>& first,
                           const std::function<void()>& second);

}  // namespace dtrain
