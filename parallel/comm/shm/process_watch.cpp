#include "dtrain/parallel/comm/shm/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dtrain {

ProcessWatch::ProcessWatch(const std::vector<int>& pids) {
  for (const int pid : pids) {
    const bool other = pid > 0 && pid != ::getpid();
    // Always close-on-exec. Fails on kernels before 5.3: then nothing is known.
    descriptors_.emplace_back(other ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
  }
}

bool ProcessWatch::ended(int i) const {
  const int fd = descriptors_[static_cast<std::size_t>(i)].get();
  pollfd entry{fd, POLLIN, 0};
  return fd >= 0 && ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

}  // namespace dtrain
