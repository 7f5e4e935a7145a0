// Sleeping until a 32-bit word in shared memory changes.
#pragma once

#include <atomic>
#include <cstdint>

namespace dtrain {

// Returns when woken, when `word` no longer is `expected`, after `seconds`, or for no reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, double seconds);

// Wakes all threads of all processes that sleep on the word.
void futex_wake_all(const std::atomic<std::uint32_t>& word);

}  // namespace dtrain
