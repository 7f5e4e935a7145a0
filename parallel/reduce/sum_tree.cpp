#include "dtrain/parallel/reduce/sum_tree.h"

#include <algorithm>
#include <bit>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

// Appends the maximal nodes below `node` that lie in `range`, from left to right.
void collect(const SumTree& tree, Node node, VirtualRange range, std::vector<Node>& out) {
  const VirtualRange covered = tree.range(node);
  if (covered.first >= range.last || covered.last <= range.first) return;
  if (covered.first >= range.first && covered.last <= range.last) {
    out.push_back(node);
    return;
  }
  for (const Node child : tree.children(node)) collect(tree, child, range, out);
}

// Walks the tree down to the given nodes and adds upwards; `next` is the first node not used yet.
// Returns the slot that holds the value of `node`.
int add_below(const SumTree& tree, Node node, const std::vector<Node>& nodes, std::size_t& next,
              std::vector<Addition>& out) {
  DTRAIN_CHECK(next < nodes.size(), "the nodes do not cover the tree of {} virtual ranks",
               tree.virtual_ranks());
  if (nodes[next] == node) return static_cast<int>(next++);
  const std::vector<Node> children = tree.children(node);
  DTRAIN_CHECK(!children.empty(), "virtual rank {} is not covered", node.index);
  const int left = add_below(tree, children[0], nodes, next, out);
  if (children.size() == 2) {
    out.push_back({left, add_below(tree, children[1], nodes, next, out)});
  }
  return left;
}

double sum_below(const SumTree& tree, Node node, const std::function<double(std::int64_t)>& value) {
  if (node.height == 0) return value(node.index);
  const std::vector<Node> children = tree.children(node);
  const double left = sum_below(tree, children[0], value);
  return children.size() == 2 ? left + sum_below(tree, children[1], value) : left;
}

}  // namespace

VirtualRange virtual_range(std::int64_t virtual_ranks, int rank, int ranks) {
  DTRAIN_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  DTRAIN_CHECK(ranks <= virtual_ranks, "{} ranks share {} virtual ranks", ranks, virtual_ranks);
  return {virtual_ranks * rank / ranks, virtual_ranks * (rank + 1) / ranks};
}

SumTree::SumTree(std::int64_t virtual_ranks) : virtual_ranks_(virtual_ranks) {
  DTRAIN_CHECK(virtual_ranks >= 1 && virtual_ranks <= std::int64_t{1} << 40, "{} virtual ranks",
               virtual_ranks);
}

Node SumTree::root() const {
  return {static_cast<int>(std::bit_width(static_cast<std::uint64_t>(virtual_ranks_ - 1))), 0};
}

VirtualRange SumTree::range(Node node) const {
  const std::int64_t first = node.index << node.height;
  const std::int64_t last = (node.index + 1) << node.height;
  return {std::min(first, virtual_ranks_), std::min(last, virtual_ranks_)};
}

std::vector<Node> SumTree::children(Node node) const {
  if (node.height == 0) return {};
  const Node left{node.height - 1, 2 * node.index};
  const Node right{node.height - 1, 2 * node.index + 1};
  if (range(right).size() == 0) return {left};
  return {left, right};
}

std::vector<Node> SumTree::partials(VirtualRange range) const {
  DTRAIN_CHECK(range.first >= 0 && range.first <= range.last && range.last <= virtual_ranks_,
               "range [{}, {}) of {} virtual ranks", range.first, range.last, virtual_ranks_);
  std::vector<Node> nodes;
  collect(*this, root(), range, nodes);
  return nodes;
}

std::vector<Addition> additions(const SumTree& tree, const std::vector<Node>& nodes) {
  std::vector<Addition> out;
  std::size_t next = 0;
  add_below(tree, tree.root(), nodes, next, out);
  DTRAIN_CHECK(next == nodes.size(), "{} nodes, of which {} cover the tree", nodes.size(), next);
  return out;
}

double tree_sum(const SumTree& tree, const std::function<double(std::int64_t)>& value) {
  return sum_below(tree, tree.root(), value);
}

}  // namespace dtrain
