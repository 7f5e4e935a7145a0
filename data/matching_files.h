// Files by a pattern of the shell: `train_*.bin`.
#pragma once

#include <string>
#include <vector>

namespace dtrain {

// The file of exactly that path, or else all that match the pattern (*, ?, [a-z]), in the order of
// the bytes of their paths: the same on every machine. Throws DataError if there is none.
std::vector<std::string> matching_files(const std::string& pattern);

}  // namespace dtrain
