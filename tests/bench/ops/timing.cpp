#include "timing.h"

#include <algorithm>
#include <cstddef>

#include <time.h>

#include "dtrain/core/base/clock.h"

namespace dtrain {

double seconds_now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Timing summarize(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const auto at = [&](double part) {
    return seconds[static_cast<std::size_t>(part * static_cast<double>(seconds.size() - 1))];
  };
  return {at(0.5), (at(0.9) - at(0.1)) / at(0.5)};
}

namespace {

double timed(int threads, const std::function<void()>& body) {
  const double before = seconds_now(threads);
  body();
  return seconds_now(threads) - before;
}

}  // namespace

Timing measure(int threads, const std::function<void()>& body) {
  for (int i = 0; i < 3; ++i) body();
  std::vector<double> seconds;
  const TimePoint start = Clock::now();
  while (seconds.size() < 9 || seconds_since(start) < 0.2) seconds.push_back(timed(threads, body));
  return summarize(seconds);
}

TimingPair measure_in_turn(int threads, const std::function<void()>& first,
                           const std::function<void()>& second) {
  for (int i = 0; i < 3; ++i) {
    first();
    second();
  }
  std::vector<double> a, b;
  const TimePoint start = Clock::now();
  while (a.size() < 9 || seconds_since(start) < 0.4) {
    a.push_back(timed(threads, first));
    b.push_back(timed(threads, second));
  }
  return {summarize(a), summarize(b)};
}

}  // namespace dtrain
