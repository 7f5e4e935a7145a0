// Where the limits and counts of this process's control groups stand, in version 1 and 2 alike.
//
//   for (const ControlGroup& group : control_groups("cpu")) {
//     for (const auto& folder : group.levels()) read(folder / "cpu.max");
//   }
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace dtrain {

struct ControlGroup {
  int version = 2;
  std::filesystem::path mount;  // "/sys/fs/cgroup", in version 1 with the controller's name
  std::filesystem::path group;  // "/job/step", below the mount

  // The group's folder and those of all groups above it, up to the mount. In a container the path
  // of the group may not exist below the mount: its root then is the group.
  std::vector<std::filesystem::path> levels() const;
};

// The groups that may govern `controller` ("cpu", "memory"), as /proc/self/cgroup lists them.
// `root` is the root of the file system to read proc from; another one in tests.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/");

}  // namespace dtrain
