// "did you mean optimizer.lr?": the valid names nearest to a mistaken one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::config_internal {

// A valid key: its path, and the names that people have for it (its own comes first).
struct Candidate {
  std::string path;
  std::vector<std::string> names;
};

// Paths of the candidates that `name`, found in `section`, most probably means: the nearest, and
// those just as near, at most three. Case, hyphens and underscores do not count.
std::vector<std::string> nearest(std::string_view name, std::string_view section,
                                 const std::vector<Candidate>& candidates);

// The nearest of a few words, or empty.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

}  // namespace dtrain::config_internal
