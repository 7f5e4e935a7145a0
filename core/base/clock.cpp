#include "dtrain/core/base/clock.h"

#include <algorithm>
#include <limits>

#include <fmt/chrono.h>

namespace dtrain {

Deadline::Deadline(double seconds) {
  // What the clock cannot hold (292 years) never passes; the cast alone would wrap into the past.
  constexpr double longest = 1e9;
  end_ = seconds >= longest
             ? TimePoint::max()
             : Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(std::max(seconds, 0.0)));
}

double Deadline::left() const {
  if (end_ == TimePoint::max()) return std::numeric_limits<double>::infinity();
  return std::max(0.0, seconds_between(Clock::now(), end_));
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     milliseconds);
}

}  // namespace dtrain
