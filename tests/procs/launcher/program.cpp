#include "program.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "dtrain/core/base/clock.h"

namespace dtrain {

Program::Program(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& variables) {
  const std::string output = folder_.path() / "output", error = folder_.path() / "error";
  std::vector<char*> words;
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));
  }
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ > 0) return;
  for (const std::string& variable : variables) ::putenv(const_cast<char*>(variable.c_str()));
  ::dup2(::open(output.c_str(), O_CREAT | O_WRONLY, 0600), STDOUT_FILENO);
  ::dup2(::open(error.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
  ::execvp(words[0], words.data());
  ::_exit(126);
}

Program::~Program() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait();
}

std::string Program::output() const {
  std::ifstream file(folder_.path() / "output");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Program::error() const {
  std::ifstream file(folder_.path() / "error");
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Program::wait_for_lines(std::size_t count, double seconds) const {
  const Deadline deadline(seconds);
  while (!deadline.passed()) {
    const std::string text = output();
    if (static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

Outcome Program::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), output(), error()};
}

Outcome run_dtrain(std::vector<std::string> arguments, const std::vector<std::string>& variables) {
  arguments.insert(arguments.begin(), DTRAIN_PROGRAM);
  return Program(arguments, variables).wait();
}

std::vector<std::string> launch_shell(int nproc, const std::string& script) {
  return {"launch", "--nproc", std::to_string(nproc), "--", "sh", "-c", script};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t name_end = line.rfind(')');
  return name_end + 2 < line.size() && line[name_end + 2] != 'Z' && line[name_end + 2] != 'X';
}

bool wait_for_end(const std::vector<pid_t>& pids, double seconds) {
  const Deadline deadline(seconds);
  while (std::any_of(pids.begin(), pids.end(), is_alive)) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace dtrain
