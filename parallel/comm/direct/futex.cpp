#include "dtrain/parallel/comm/direct/futex.h"

#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <time.h>

namespace dtrain {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec timeout{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  // Not FUTEX_PRIVATE: the word may lie in memory that other processes map elsewhere.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace dtrain
