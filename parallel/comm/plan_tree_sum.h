// Who holds which nodes of the sum tree, and in which slot of the arena, when the last wave of
// lanes of every rank has finished: what Communicator::tree_sum needs to know. A pure function of
// the recipe and the placement, so that all ranks come to the same plan without talking.
#pragma once

#include <cstddef>
#include <span>

#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

// V virtual ranks on lanes.size() ranks; lanes[r] is the number of lanes of rank r. `slot_bytes` is
// the distance between two slots of an arena. Slot 0 receives the result. See SlotSchedule.
TreeSum plan_tree_sum(const SumTree& tree, std::span<const int> lanes, std::size_t slot_bytes);

// All ranks have as many lanes.
TreeSum plan_tree_sum(const SumTree& tree, int ranks, int lanes, std::size_t slot_bytes);

}  // namespace dtrain
