#include "dtrain/data/matching_files.h"

#include <algorithm>
#include <sys/stat.h>

#include <glob.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

std::vector<std::string> matching_files(const std::string& pattern) {
  struct stat status {};
  if (::stat(pattern.c_str(), &status) == 0) return {pattern};
  // Sorted below: glob's own order is that of the locale.
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_NOSPACE) throw DataError(pattern, -1, "too many files match");
  if (files.empty()) {
    const bool is_pattern = pattern.find_first_of("*?[") != std::string::npos;
    throw DataError(pattern, -1,
                    is_pattern ? "no file matches" : "cannot open: " + errno_text(ENOENT));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace dtrain
