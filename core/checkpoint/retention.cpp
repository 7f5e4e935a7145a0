#include "dtrain/core/checkpoint/retention.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dtrain {

std::vector<std::int64_t> steps_to_remove(std::span<const RetainedStep> own, std::int64_t saved,
                                          int keep_last, int keep_best) {
  std::set<std::int64_t> candidates;
  std::vector<std::pair<double, std::int64_t>> by_loss;
  for (const RetainedStep& entry : own) {
    if (entry.validation_loss) by_loss.emplace_back(*entry.validation_loss, entry.step);
    if (entry.step < saved) candidates.insert(entry.step);
  }
  // `saved` is one of keep_last.
  for (int kept = 1; kept < keep_last && !candidates.empty(); ++kept) {
    candidates.erase(std::prev(candidates.end()));
  }
  std::ranges::sort(by_loss);
  for (std::size_t i = 0; i < by_loss.size() && i < static_cast<std::size_t>(keep_best); ++i) {
    candidates.erase(by_loss[i].second);
  }
  return {candidates.begin(), candidates.end()};
}

}  // namespace dtrain
