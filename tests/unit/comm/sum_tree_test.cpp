// Note [Order of sums]: the tree, its partials and the schedules built on them, against a
// straightforward recursion on expressions.
#include "dtrain/parallel/reduce/sum_tree.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/reduce/slot_schedule.h"

namespace dtrain {
namespace {

// The sum of [first, first + 2^height) cut at V, as text: the definition, written down plainly.
std::string expression(std::int64_t virtual_ranks, std::int64_t first, std::int64_t width) {
  if (width == 1) return fmt::format("{}", first);
  const std::int64_t middle = first + width / 2;
  const std::string left = expression(virtual_ranks, first, width / 2);
  if (middle >= virtual_ranks) return left;
  return fmt::format("({}+{})", left, expression(virtual_ranks, middle, width / 2));
}

std::string expression(std::int64_t virtual_ranks) {
  return expression(
      virtual_ranks, 0,
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(virtual_ranks))));
}

std::string expression_of(const SumTree& tree, Node node) {
  return expression(tree.virtual_ranks(), node.index << node.height,
                    std::int64_t{1} << node.height);
}

// Runs additions on texts.
std::string run(std::vector<std::string> slots, const std::vector<Addition>& additions) {
  for (const Addition& a : additions) {
    slots.at(a.into) = fmt::format("({}+{})", slots.at(a.into), slots.at(a.from));
    slots.at(a.from) = "used up";
  }
  return slots.at(0);
}

TEST(SumTree, SixVirtualRanksByHand) {
  const SumTree tree(6);
  EXPECT_EQ(tree.root(), (Node{3, 0}));
  EXPECT_EQ(tree.range({2, 1}), (VirtualRange{4, 6}));
  EXPECT_EQ(tree.children({3, 0}), (std::vector<Node>{{2, 0}, {2, 1}}));
  EXPECT_EQ(tree.children({2, 1}), (std::vector<Node>{{1, 2}}));
  EXPECT_EQ(expression(6), "(((0+1)+(2+3))+(4+5))");
  // Four processes own 1, 2, 1 and 2 virtual ranks.
  EXPECT_EQ(virtual_range(6, 0, 4), (VirtualRange{0, 1}));
  EXPECT_EQ(virtual_range(6, 1, 4), (VirtualRange{1, 3}));
  EXPECT_EQ(virtual_range(6, 2, 4), (VirtualRange{3, 4}));
  EXPECT_EQ(virtual_range(6, 3, 4), (VirtualRange{4, 6}));
  EXPECT_EQ(tree.partials({1, 3}), (std::vector<Node>{{0, 1}, {0, 2}}));
  // The highest of the nodes that stand for [4, 6).
  EXPECT_EQ(tree.partials({4, 6}), (std::vector<Node>{{2, 1}}));
  EXPECT_EQ(tree.partials({0, 6}), (std::vector<Node>{{3, 0}}));
  const std::vector<Node> nodes{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {2, 1}};
  EXPECT_EQ(additions(tree, nodes), (std::vector<Addition>{{0, 1}, {2, 3}, {0, 2}, {0, 4}}));
}

TEST(SumTree, OneVirtualRank) {
  const SumTree tree(1);
  EXPECT_EQ(tree.root(), (Node{0, 0}));
  EXPECT_EQ(tree.partials({0, 1}), (std::vector<Node>{{0, 0}}));
  EXPECT_TRUE(additions(tree, {{0, 0}}).empty());
  EXPECT_EQ(tree_sum(tree, [](std::int64_t) { return 2.5; }), 2.5);
}

TEST(SumTree, SumsDoublesInTheOrderOfTheTree) {
  // In any other order the small values vanish beside the large ones.
  const std::vector<double> values{1e16, 1, -1e16, 1, 3, 5};
  const double expected = ((1e16 + 1.0) + (-1e16 + 1.0)) + (3.0 + 5.0);
  EXPECT_EQ(tree_sum(SumTree(6), [&](std::int64_t v) { return values[v]; }), expected);
}

TEST(SumTree, RefusesNodesThatDoNotCover) {
  const SumTree tree(4);
  EXPECT_THROW(additions(tree, {{1, 0}}), InternalError);
  EXPECT_THROW(additions(tree, {{1, 0}, {1, 1}, {0, 3}}), InternalError);
  EXPECT_THROW(additions(tree, {{0, 1}, {1, 1}}), InternalError);
  EXPECT_THROW(SumTree(0), InternalError);
  EXPECT_THROW(virtual_range(4, 0, 5), InternalError);
}

RC_GTEST_PROP(SumTree, RangesOfRanksCoverAllInOrder, ()) {
  const auto v = *rc::gen::inRange<std::int64_t>(1, 201);
  const auto ranks = *rc::gen::inRange<int>(1, static_cast<int>(v) + 1);
  std::int64_t next = 0;
  for (int r = 0; r < ranks; ++r) {
    const VirtualRange range = virtual_range(v, r, ranks);
    RC_ASSERT(range.first == next);
    RC_ASSERT(range.size() >= v / ranks && range.size() <= v / ranks + 1);
    next = range.last;
  }
  RC_ASSERT(next == v);
}

RC_GTEST_PROP(SumTree, PartialsCoverTheRangeAndAreMaximal, ()) {
  const auto v = *rc::gen::inRange<std::int64_t>(1, 201);
  const auto first = *rc::gen::inRange<std::int64_t>(0, v);
  const auto last = *rc::gen::inRange<std::int64_t>(first + 1, v + 1);
  const SumTree tree(v);
  const VirtualRange range{first, last};
  const std::vector<Node> nodes = tree.partials(range);
  std::int64_t next = first;
  for (const Node node : nodes) {
    RC_ASSERT(tree.range(node).first == next);
    next = tree.range(node).last;
    if (node == tree.root()) continue;
    const VirtualRange parent = tree.range({node.height + 1, node.index / 2});
    RC_ASSERT(parent.first < first || parent.last > last);
  }
  RC_ASSERT(next == last);
  RC_ASSERT(nodes.size() <= std::max(1.0, 2 * std::ceil(std::log2(static_cast<double>(v)))));
}

RC_GTEST_PROP(SumTree, AnyPartitionGivesTheSameExpression, ()) {
  const auto v = *rc::gen::inRange<std::int64_t>(1, 201);
  const auto ranks = *rc::gen::inRange<int>(1, static_cast<int>(v) + 1);
  const SumTree tree(v);
  std::vector<Node> nodes;
  std::vector<std::string> slots;
  for (int r = 0; r < ranks; ++r) {
    for (const Node node : tree.partials(virtual_range(v, r, ranks))) {
      nodes.push_back(node);
      slots.push_back(expression_of(tree, node));
    }
  }
  RC_ASSERT(run(slots, additions(tree, nodes)) == expression(v));
}

// Runs every wave of a rank on texts and returns what its partials hold.
std::vector<SlotNode> run_rank(const SumTree& tree, VirtualRange range, int lanes,
                               std::vector<std::string>& values) {
  const SlotSchedule schedule(tree, range, lanes);
  std::vector<std::string> slots(schedule.slots(), "empty");
  std::int64_t v = range.first;
  for (int w = 0; w < schedule.waves(); ++w) {
    EXPECT_EQ(schedule.wave_range(w).first, v);
    EXPECT_LE(schedule.leaf_slots(w).size(), static_cast<std::size_t>(lanes));
    for (const int slot : schedule.leaf_slots(w)) {
      EXPECT_TRUE(slots.at(slot) == "empty" || slots.at(slot) == "used up") << "overwrites a value";
      slots.at(slot) = std::to_string(v++);
    }
    for (const Addition& a : schedule.additions_after(w)) {
      slots.at(a.into) = fmt::format("({}+{})", slots.at(a.into), slots.at(a.from));
      slots.at(a.from) = "used up";
    }
  }
  EXPECT_EQ(v, range.last);
  EXPECT_TRUE(schedule.additions_after(schedule.waves() - 1).empty());
  for (const SlotNode& partial : schedule.partials()) values.push_back(slots.at(partial.slot));
  return schedule.partials();
}

TEST(SlotSchedule, EveryPlacementGivesTheTreesExpression) {
  for (std::int64_t v = 1; v <= 32; ++v) {
    const SumTree tree(v);
    for (int ranks = 1; ranks <= v; ++ranks) {
      for (int lanes = 1; lanes <= 8; ++lanes) {
        std::vector<Node> nodes;
        std::vector<std::string> values;
        for (int r = 0; r < ranks; ++r) {
          for (const SlotNode& p : run_rank(tree, virtual_range(v, r, ranks), lanes, values)) {
            nodes.push_back(p.node);
          }
        }
        ASSERT_EQ(run(values, additions(tree, nodes)), expression(v))
            << v << " virtual ranks, " << ranks << " ranks, " << lanes << " lanes";
      }
    }
  }
}

TEST(SlotSchedule, HoldsNothingWhileTheLanesCoverTheRange) {
  for (int n = 1; n <= 8; ++n) {
    const SlotSchedule schedule(SumTree(8), {0, n}, 8);
    EXPECT_EQ(schedule.waves(), 1);
    EXPECT_EQ(schedule.slots(), n);
  }
}

TEST(SlotSchedule, AlignedRangesHoldAtMostLogarithmicallyMany) {
  for (int height = 0; height <= 8; ++height) {
    const std::int64_t n = std::int64_t{1} << height;
    for (const int lanes : {1, 2, 4, 8}) {
      const SlotSchedule schedule(SumTree(4 * n), {n, 2 * n}, lanes);
      EXPECT_LE(schedule.slots(), height + lanes) << n << " virtual ranks, " << lanes << " lanes";
    }
  }
  EXPECT_EQ(SlotSchedule(SumTree(8), {0, 8}, 1).slots(), 4);  // nodes of 4, 2, 1, and the leaf
  EXPECT_EQ(SlotSchedule(SumTree(8), {0, 8}, 2).slots(), 4);
  EXPECT_EQ(SlotSchedule(SumTree(8), {0, 8}, 4).slots(), 5);
}

}  // namespace
}  // namespace dtrain
