#include "dtrain/launcher/process.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"

namespace dtrain {

namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// All that the child needs, made before it exists.
struct ChildPlan {
  char* const* arguments;
  char* const* environment;
  int input;
  int output;
  int error_output;
  const std::vector<int>* inherited;
  const sigset_t* blocked;
  pid_t parent;
};

// Note [After vfork]: the child shares this process's memory until it executes the program, so it
// makes system calls only and leaves by _exit. In return it starts in microseconds whatever the
// size of the launcher, and an errno that it stores is seen by the parent.
void run_child(const ChildPlan& plan, volatile int& error) {
  auto check = [&error](bool good) {
    if (good) return;
    error = errno;
    ::_exit(127);
  };
  check(::setpgid(0, 0) == 0);
  check(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  // A parent that ended before prctl sends no signal.
  if (::getppid() != plan.parent) ::_exit(127);
  check(::dup2(plan.input, STDIN_FILENO) >= 0);
  if (plan.output >= 0) check(::dup2(plan.output, STDOUT_FILENO) >= 0);
  if (plan.error_output >= 0) check(::dup2(plan.error_output, STDERR_FILENO) >= 0);
  for (int fd : *plan.inherited) check(::fcntl(fd, F_SETFD, 0) == 0);
  // The launcher ignores these; a program expects the default.
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  check(::sigprocmask(SIG_SETMASK, plan.blocked, nullptr) == 0);
  ::execvpe(plan.arguments[0], plan.arguments, plan.environment);
  check(false);
}

__attribute__((noinline)) pid_t fork_and_execute(const ChildPlan& plan, volatile int& error) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(plan, error);
  return pid;
}

}  // namespace

pid_t start_process(const ProcessSpec& spec) {
  DTRAIN_CHECK(!spec.arguments.empty(), "no program");
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) throw std::system_error(errno, std::generic_category(), "/dev/null: cannot open");
  const std::vector<char*> arguments = pointers_to(spec.arguments);
  const std::vector<char*> environment = pointers_to(spec.environment);
  const ChildPlan plan{arguments.data(),      environment.data(),  null.get(),
                       spec.standard_output,  spec.standard_error, &spec.inherited,
                       &spec.blocked_signals, ::getpid()};
  volatile int error = 0;
  // No handler of this process may run in the child.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork_and_execute(plan, error);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    throw std::system_error(fork_error, std::generic_category(),
                            "cannot start a process for " + spec.arguments[0]);
  }
  if (error != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw ConfigError(fmt::format("{}: cannot be executed: {}", spec.arguments[0],
                                  errno_text(static_cast<int>(error))));
  }
  return pid;
}

std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> environment = variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(variables.begin(), variables.end(), [&](const auto& other) {
      return !name.empty() && other.starts_with(name);
    });
    if (!replaced) environment.emplace_back(text);
  }
  return environment;
}

std::string own_executable() {
  // The path, because it is what process lists show; the link itself if the file was replaced.
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0 || length == static_cast<ssize_t>(path.size())) return "/proc/self/exe";
  path.resize(static_cast<std::size_t>(length));
  struct stat by_path, by_link;
  const bool same = ::stat(path.c_str(), &by_path) == 0 &&
                    ::stat("/proc/self/exe", &by_link) == 0 && by_path.st_dev == by_link.st_dev &&
                    by_path.st_ino == by_link.st_ino;
  return same ? path : "/proc/self/exe";
}

}  // namespace dtrain
