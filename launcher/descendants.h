// Processes that ranks left behind: they are adopted by the launcher when their parents end.
#pragma once

#include <set>
#include <sys/types.h>

namespace dtrain {

// Makes orphans of this process's descendants its own children (as they are anyhow for process 1).
void adopt_orphans();

// Children that this process has now, zombies too.
std::set<pid_t> current_children();

// Ends and reaps all children but those in `spared`, and what they leave behind in turn.
void end_children_except(const std::set<pid_t>& spared);

}  // namespace dtrain
