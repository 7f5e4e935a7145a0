#include "dtrain/core/base/control_group.h"

#include <fstream>
#include <string>

#include <fmt/format.h>

namespace dtrain {
namespace fs = std::filesystem;

std::vector<fs::path> ControlGroup::levels() const {
  std::vector<fs::path> folders;
  fs::path level = group;
  while (true) {
    folders.push_back(mount / level.relative_path());
    if (level.empty() || level == level.parent_path()) return folders;
    level = level.parent_path();
  }
}

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::vector<ControlGroup> found;
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    // hierarchy-id:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") {
      found.push_back({2, mount, group});
    } else if (controllers.find(fmt::format(",{},", controller)) != std::string::npos) {
      found.push_back({1, mount / controller, group});
    }
  }
  return found;
}

}  // namespace dtrain
