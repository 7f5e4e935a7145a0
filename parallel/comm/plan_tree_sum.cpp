#include "dtrain/parallel/comm/plan_tree_sum.h"

#include "dtrain/parallel/reduce/slot_schedule.h"

namespace dtrain {

TreeSum plan_tree_sum(const SumTree& tree, std::span<const int> lanes, std::size_t slot_bytes) {
  TreeSum sum{tree, {}, 0};
  const int ranks = static_cast<int>(lanes.size());
  for (int r = 0; r < ranks; ++r) {
    const VirtualRange range = virtual_range(tree.virtual_ranks(), r, ranks);
    const SlotSchedule schedule(tree, range, lanes[static_cast<std::size_t>(r)]);
    std::vector<Partial>& partials = sum.partials.emplace_back();
    for (const SlotNode& held : schedule.partials()) {
      partials.push_back({held.node, static_cast<std::size_t>(held.slot) * slot_bytes});
    }
  }
  return sum;
}

TreeSum plan_tree_sum(const SumTree& tree, int ranks, int lanes, std::size_t slot_bytes) {
  const std::vector<int> all(static_cast<std::size_t>(ranks), lanes);
  return plan_tree_sum(tree, all, slot_bytes);
}

}  // namespace dtrain
