#include "dtrain/launcher/stop_signals.h"

#include <cerrno>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

namespace dtrain {

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) ::sigaddset(&set, signal);
  struct sigaction hangup;
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    ::sigaddset(&set, SIGHUP);
  }
  return set;
}

SignalReader::SignalReader() {
  sigset_t set = stop_signals();
  ::sigaddset(&set, SIGCHLD);
  // Where SIGCHLD was ignored at start, children would vanish without telling how they ended.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &child_before_);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) {
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw std::system_error(error, std::generic_category(), "cannot read signals");
  }
}

SignalReader::~SignalReader() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
}

int SignalReader::next() {
  signalfd_siginfo info;
  while (true) {
    const ssize_t n = ::read(fd_.get(), &info, sizeof(info));
    if (n == static_cast<ssize_t>(sizeof(info))) return static_cast<int>(info.ssi_signo);
    if (n < 0 && errno == EINTR) continue;
    return 0;
  }
}

}  // namespace dtrain
