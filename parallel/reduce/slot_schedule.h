// How one process keeps the gradients of its virtual ranks in few arenas.
//
// A process runs its n virtual ranks in waves of L lanes: virtual rank first + w * L + l in lane l
// of wave w. Each lane writes its leaf of the sum tree into an arena of its own, a *slot*. After
// each wave but the last, leaves are added as far as Note [Order of sums] allows, like a binary
// counter; what cannot be added yet is *held*. The leaves of the last wave stay as they are: the
// collective that sums over the ranks adds them on the fly, bucket by bucket.
//
//   SlotSchedule schedule(tree, virtual_range(V, rank, R), lanes);
//   for (int w = 0; w < schedule.waves(); ++w) {
//     run(lane l into schedule.leaf_slots(w)[l]);
//     for (auto [into, from] : schedule.additions_after(w)) slot[into] += slot[from];
//   }
//   // schedule.partials() says which node of the tree lies in which slot.
//
// Slots: at most log2 n held (n aligned virtual ranks), plus one per lane; none is held while the
// lanes cover the range.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrain/parallel/reduce/sum_tree.h"

namespace dtrain {

// A node of the tree and the slot that holds its value.
struct SlotNode {
  Node node;
  int slot = 0;
  friend bool operator==(const SlotNode&, const SlotNode&) = default;
};

class SlotSchedule {
 public:
  // `range` must not be empty; lanes >= 1.
  SlotSchedule(const SumTree& tree, VirtualRange range, int lanes);

  int waves() const { return static_cast<int>(waves_.size()); }
  // Arenas needed.
  int slots() const { return slots_; }
  // Virtual ranks of wave `w`, one per lane in use.
  VirtualRange wave_range(int w) const { return waves_.at(w).range; }
  // The slot that lane l of wave `w` writes its leaf to; the last wave may use fewer lanes.
  const std::vector<int>& leaf_slots(int w) const { return waves_.at(w).leaf_slots; }
  // To run in this order when wave `w` is done; empty after the last one.
  const std::vector<Addition>& additions_after(int w) const { return waves_.at(w).additions; }
  // What the slots hold when the last wave is done, from left to right.
  const std::vector<SlotNode>& partials() const { return partials_; }

 private:
  struct Wave {
    VirtualRange range;
    std::vector<int> leaf_slots;
    std::vector<Addition> additions;
  };

  std::vector<Wave> waves_;
  std::vector<SlotNode> partials_;
  int slots_ = 0;
};

}  // namespace dtrain
