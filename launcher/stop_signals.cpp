#include "dtrain/launcher/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Where the handler writes: it can reach nothing else.
std::atomic<int> handler_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

extern "C" void pass_signal_on(int signal) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // A full pipe has enough to tell already.
  [[maybe_unused]] const ssize_t n = ::write(handler_fd.load(), &byte, 1);
  errno = error;
}

}  // namespace

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) ::sigaddset(&set, signal);
  struct sigaction hangup;
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    ::sigaddset(&set, SIGHUP);
  }
  return set;
}

SignalReader::SignalReader() {
  DTRAIN_CHECK(handler_fd.load() < 0, "two readers of signals");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe for signals");
  }
  read_.reset(ends[0]);
  write_.reset(ends[1]);
  handler_fd.store(write_.get());

  sigset_t set = stop_signals();
  ::sigaddset(&set, SIGCHLD);
  struct sigaction action = {};
  action.sa_handler = pass_signal_on;
  action.sa_flags = SA_RESTART;
  ::sigfillset(&action.sa_mask);
  std::size_t count = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) {
    if (!::sigismember(&set, signal)) continue;
    caught_[count].signal = signal;
    ::sigaction(signal, &action, &caught_[count].before);
    ++count;
  }
  // Some programs start others with signals blocked.
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalReader::~SignalReader() {
  for (const Caught& caught : caught_) {
    if (caught.signal != 0) ::sigaction(caught.signal, &caught.before, nullptr);
  }
  handler_fd.store(-1);
}

int SignalReader::next() {
  unsigned char byte = 0;
  while (true) {
    const ssize_t n = ::read(read_.get(), &byte, 1);
    if (n == 1) return byte;
    if (n < 0 && errno == EINTR) continue;
    return 0;
  }
}

}  // namespace dtrain
