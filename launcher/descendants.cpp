#include "dtrain/launcher/descendants.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace dtrain {
namespace fs = std::filesystem;

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::set<pid_t> current_children() {
  std::set<pid_t> children;
  std::error_code error;
  for (const auto& thread : fs::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t pid = 0; file >> pid;) children.insert(pid);
  }
  return children;
}

void end_children_except(const std::set<pid_t>& spared) {
  // Each round ends one generation. Bounded, for programs that start others faster than they die.
  constexpr int most_rounds = 100;
  for (int round = 0; round < most_rounds; ++round) {
    bool found = false;
    for (const pid_t pid : current_children()) {
      if (spared.contains(pid)) continue;
      found = true;
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (!found) return;
  }
}

}  // namespace dtrain
