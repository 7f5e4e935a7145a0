// Time: a monotonic clock for durations and deadlines, and a wall clock for logs.
#pragma once

#include <chrono>
#include <string>

namespace dtrain {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// Seconds between two points of the monotonic clock.
inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}
inline double seconds_since(TimePoint from) {
  return seconds_between(from, Clock::now());
}

// A point that many seconds from now; Deadline{} never passes.
class Deadline {
 public:
  Deadline() : end_(TimePoint::max()) {}
  explicit Deadline(double seconds);
  bool passed() const { return end_ != TimePoint::max() && Clock::now() >= end_; }
  // Seconds left, 0 if passed; infinity if it never passes.
  double left() const;

 private:
  TimePoint end_;
};

// Wall clock in UTC, "2026-03-01T12:00:00.123Z".
std::string utc_now();

}  // namespace dtrain
