#include "dtrain/parallel/reduce/slot_schedule.h"

#include <algorithm>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Adds the values in `have`, which cover `node`, up to `node`; `next` is the first not used yet.
// Returns the slot of the result.
int add_up(const SumTree& tree, Node node, const std::vector<SlotNode>& have, std::size_t& next,
           std::vector<Addition>& out) {
  if (have.at(next).node == node) return have[next++].slot;
  const std::vector<Node> children = tree.children(node);
  DTRAIN_CHECK(!children.empty(), "virtual rank {} is in no slot", node.index);
  const int left = add_up(tree, children[0], have, next, out);
  if (children.size() == 2) out.push_back({left, add_up(tree, children[1], have, next, out)});
  return left;
}

}  // namespace

SlotSchedule::SlotSchedule(const SumTree& tree, VirtualRange range, int lanes) {
  DTRAIN_CHECK(range.size() >= 1 && lanes >= 1, "{} virtual ranks in {} lanes", range.size(),
               lanes);
  std::vector<bool> used;  // [slot]
  const auto take = [&] {
    const auto free = std::find(used.begin(), used.end(), false);
    const int slot = static_cast<int>(free - used.begin());
    if (free == used.end()) used.push_back(false);
    used[static_cast<std::size_t>(slot)] = true;
    return slot;
  };

  for (std::int64_t first = range.first; first < range.last; first += lanes) {
    Wave wave;
    wave.range = {first, std::min(first + lanes, range.last)};
    for (std::int64_t v = first; v < wave.range.last; ++v) {
      wave.leaf_slots.push_back(take());
      partials_.push_back({{0, v}, wave.leaf_slots.back()});
    }
    if (wave.range.last < range.last) {
      std::vector<SlotNode> held;
      std::size_t next = 0;
      for (const Node node : tree.partials({range.first, wave.range.last})) {
        held.push_back({node, add_up(tree, node, partials_, next, wave.additions)});
      }
      for (const Addition& addition : wave.additions) {
        used[static_cast<std::size_t>(addition.from)] = false;
      }
      partials_ = std::move(held);
    }
    waves_.push_back(std::move(wave));
  }
  slots_ = static_cast<int>(used.size());
}

}  // namespace dtrain
