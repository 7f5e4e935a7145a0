// What a job may not leave behind: processes, names in shared memory, temporary files.
//
//   Leftovers leftovers(mark);                 // before the job, whose environment holds `mark`
//   EXPECT_EQ(leftovers.found(temporary), "")  // after it
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

namespace dtrain {

// Processes whose environment holds the text, zombies excepted.
std::vector<pid_t> processes_marked(const std::string& mark);

class Leftovers {
 public:
  explicit Leftovers(std::string mark);
  // One line per thing left; `temporary` is the job's TMPDIR, which was empty.
  std::string found(const std::filesystem::path& temporary) const;

 private:
  std::string mark_;
  std::set<std::string> shared_memory_before_;
};

}  // namespace dtrain
