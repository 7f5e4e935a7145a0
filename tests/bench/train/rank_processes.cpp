#include "rank_processes.h"

#include <cstdio>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "program.h"
#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/shm/shm_communicator.h"
#include "dtrain/parallel/store/unix_store.h"
#include "dtrain/parallel/store/unix_store_server.h"

namespace dtrain {

namespace {

// Runs `body` in a forked process that ends with this one.
pid_t start(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw DeviceError("cannot start a process: " + errno_text(errno));
  if (pid > 0) return pid;
  int code = 1;
  try {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    code = 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

void run_processes(int ranks, const std::function<void(Communicator&)>& body) {
  // The server has a thread, so it lives in a process of its own, and the ranks are forked by one
  // that has none.
  int ready[2];
  if (::pipe(ready) != 0) throw DeviceError("cannot make a pipe: " + errno_text(errno));
  UniqueFd ready_read(ready[0]), ready_write(ready[1]);
  const pid_t host = start([&] {
    UnixStoreServer server;
    const std::string path = server.address();
    write_all(ready_write.get(), std::as_bytes(std::span(path)), "pipe");
    ready_write.reset();
    ready_read.reset();
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    int signal = 0;
    ::sigwait(&set, &signal);
  });
  ready_write.reset();
  std::string path(256, '\0');
  const ssize_t size = ::read(ready_read.get(), path.data(), path.size());
  path.resize(size > 0 ? static_cast<std::size_t>(size) : 0);

  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks && !path.empty(); ++rank) {
    pids.push_back(start([&] {
      pin_to_processor(rank);
      UnixStore store(path);
      const auto comm = make_shm_communicator(store, rank, ranks);
      body(*comm);
    }));
  }
  int failed = path.empty() ? 1 : 0;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed += status != 0;
  }
  ::kill(host, SIGTERM);
  ::waitpid(host, nullptr, 0);
  if (failed != 0) throw DeviceError(fmt::format("{} processes failed", failed));
}

}  // namespace dtrain
