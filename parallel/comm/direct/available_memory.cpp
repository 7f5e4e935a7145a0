#include "dtrain/parallel/comm/direct/available_memory.h"

#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "dtrain/core/base/control_group.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // missing, or "max"
  return number;
}

// The value behind a key of a file of "key value" lines, 0 if it is not there.
std::uint64_t read_key(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  for (std::uint64_t value = 0; file >> name;) {
    if (file >> value && name == key) return value;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

struct Files {
  const char* limit;
  const char* usage;
  const char* cache;  // key in memory.stat: pages of files that can be dropped
};
constexpr Files version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Files version_2{"memory.max", "memory.current", "inactive_file"};

void tighten(const fs::path& folder, const Files& files, AvailableMemory& out) {
  const auto limit = read_number(folder / files.limit);
  const auto usage = read_number(folder / files.usage);
  if (!limit || !usage) return;
  const std::uint64_t used =
      *usage - std::min(*usage, read_key(folder / "memory.stat", files.cache));
  const std::uint64_t left = *limit > used ? *limit - used : 0;
  if (left < out.bytes) out = {left, (folder / files.limit).string()};
}

}  // namespace

AvailableMemory available_memory(const fs::path& root) {
  AvailableMemory out{std::numeric_limits<std::uint64_t>::max(), "nothing"};
  const std::uint64_t kibibytes = read_key(root / "proc/meminfo", "MemAvailable:");
  if (kibibytes > 0) out = {kibibytes * 1024, "memory of the machine"};
  for (const ControlGroup& group : control_groups("memory", root)) {
    for (const fs::path& folder : group.levels()) {
      tighten(folder, group.version == 2 ? version_2 : version_1, out);
    }
  }
  return out;
}

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024));
}

}  // namespace dtrain
