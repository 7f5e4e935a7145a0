// Note [Order of sums]
//
// Gradients of the V virtual ranks of a step are added in one fixed binary tree, whatever process
// computed them, so that the placement cannot change a bit. Node (h, i) covers virtual ranks
// [i * 2^h, (i + 1) * 2^h), cut at V. A node with one child is that child; an inner node with two
// is left + right. Floating-point addition is commutative, so either order within a pair is the
// same; associativity is what the tree fixes.
//
// Who owns a range of virtual ranks may add within its maximal complete nodes (those nodes of the
// tree that lie wholly in the range and whose parent does not). They are the range's *partials*.
// All partials of all ranks cover the tree; adding them upwards gives the root.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace dtrain {

// A node of the sum tree: height h above the virtual ranks, index i among the nodes of its height.
struct Node {
  int height = 0;
  std::int64_t index = 0;
  friend auto operator<=>(const Node&, const Node&) = default;
};

// Half-open range of virtual ranks.
struct VirtualRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t size() const { return last - first; }
  friend bool operator==(const VirtualRange&, const VirtualRange&) = default;
};

// Virtual ranks of process `rank` of `ranks`: [V*r/R, V*(r+1)/R).
VirtualRange virtual_range(std::int64_t virtual_ranks, int rank, int ranks);

class SumTree {
 public:
  explicit SumTree(std::int64_t virtual_ranks);

  std::int64_t virtual_ranks() const { return virtual_ranks_; }
  Node root() const;
  // Virtual ranks below the node, cut at V.
  VirtualRange range(Node node) const;
  // The node's children that cover any virtual rank: two, or one where the second would be empty.
  std::vector<Node> children(Node node) const;

  // Maximal complete nodes of a range, from left to right: one if the range is a node, at most
  // 2 * log2(V) otherwise. A node with one child stands for its child: the highest is listed.
  std::vector<Node> partials(VirtualRange range) const;

 private:
  std::int64_t virtual_ranks_;
};

// One addition of a schedule over numbered inputs: slot[into] += slot[from].
struct Addition {
  int into = 0;
  int from = 0;
  friend bool operator==(const Addition&, const Addition&) = default;
};

// The additions that turn the given nodes (which must cover `root` exactly, from left to right)
// into the root's value, in tree order; the result ends in slot 0.
std::vector<Addition> additions(const SumTree& tree, const std::vector<Node>& nodes);

// Adds doubles of all virtual ranks in tree order: value(v) is what virtual rank v holds.
double tree_sum(const SumTree& tree, const std::function<double(std::int64_t)>& value);

}  // namespace dtrain
