#include "dtrain/core/config/suggest.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace dtrain::config_internal {

namespace {

// Longer names are no typing mistake, and comparing them costs.
constexpr std::size_t kMaxName = 48;
constexpr std::size_t kMaxSuggestions = 3;

std::string squeezed(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == ' ') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Letters to insert, remove, change or swap with a neighbour.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({change, last[j] + 1, now[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

// Distances above this are another word: one letter in short names, a third of long ones.
std::size_t tolerance(const std::string& a) {
  return a.size() < 2 ? 0 : std::max<std::size_t>(1, a.size() / 3);
}

std::string_view section_of_path(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

}  // namespace

std::vector<std::string> nearest(std::string_view name, std::string_view section,
                                 const std::vector<Candidate>& candidates) {
  if (name.size() > kMaxName) return {};
  const std::string wanted = squeezed(name);
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::vector<std::string> paths;
  for (const Candidate& candidate : candidates) {
    const bool here = section_of_path(candidate.path) == section;
    for (std::size_t i = 0; i < candidate.names.size(); ++i) {
      const std::size_t distance = edit_distance(wanted, squeezed(candidate.names[i]));
      // A name from elsewhere must fit better: few letters differ between many short keys.
      if (distance > (here ? tolerance(wanted) : tolerance(wanted) / 2)) continue;
      // Among equals, the same section goes first, then a key's own name.
      const std::size_t score = 4 * distance + (here ? 0 : 2) + (i == 0 ? 0 : 1);
      if (score > best) continue;
      if (score < best) paths.clear();
      best = score;
      if (paths.empty() || paths.back() != candidate.path) paths.push_back(candidate.path);
    }
  }
  if (paths.size() > kMaxSuggestions) paths.resize(kMaxSuggestions);
  return paths;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
  std::vector<Candidate> candidates;
  for (const std::string& known : words) candidates.push_back({known, {known}});
  const std::vector<std::string> found = nearest(word, "", candidates);
  return found.empty() ? "" : found.front();
}

}  // namespace dtrain::config_internal
