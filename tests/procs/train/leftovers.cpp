#include "leftovers.h"

#include <fstream>

#include "program.h"
#include <fmt/format.h>

namespace dtrain {
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.insert(entry.path().filename());
  }
  return names;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<pid_t> processes_marked(const std::string& mark) {
  std::vector<pid_t> pids;
  for (const std::string& name : names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::stol(name));
    if (text_of(fs::path("/proc") / name / "environ").find(mark) == std::string::npos) continue;
    if (is_alive(pid)) pids.push_back(pid);
  }
  return pids;
}

Leftovers::Leftovers(std::string mark)
    : mark_(std::move(mark)), shared_memory_before_(names_in("/dev/shm")) {}

std::string Leftovers::found(const fs::path& temporary) const {
  std::string text;
  for (const pid_t pid : processes_marked(mark_)) {
    std::string command = text_of(fs::path("/proc") / std::to_string(pid) / "cmdline");
    for (char& c : command) {
      if (c == '\0') c = ' ';
    }
    text += fmt::format("process {}: {}\n", pid, command);
  }
  for (const std::string& name : names_in("/dev/shm")) {
    if (!shared_memory_before_.contains(name)) text += "/dev/shm/" + name + "\n";
  }
  for (const std::string& name : names_in(temporary)) text += (temporary / name).string() + "\n";
  return text;
}

}  // namespace dtrain
