// Waiting that spins before it sleeps: falling asleep and being woken takes many microseconds, and
// what a thread of a warm team waits for often takes less.
#pragma once

#include <atomic>

namespace dtrain {

// Tells the processor that the thread only waits.
void pause_processor();

// Returns when `value` is no longer `old`. Whoever changes it calls notify_one or notify_all on it,
// which cost nothing while nobody sleeps.
template <typename T>
void wait_while(const std::atomic<T>& value, T old) {
  constexpr int spins = 1000;  // some 20 microseconds
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_processor();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace dtrain
