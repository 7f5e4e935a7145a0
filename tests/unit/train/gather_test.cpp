// Small collectives of the training loop.
#include "dtrain/parallel/train/gather.h"

#include <string>
#include <vector>

#include "support.h"

#include "dtrain/parallel/reduce/sum_tree.h"

namespace dtrain::test {
namespace {

TEST(Gather, TextsOfAnyLength) {
  const std::vector<std::string> texts = {"a", "", std::string(100000, 'x'),
                                          std::string("with\0zero", 9)};
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Communicator& comm) {
      const std::vector<std::string> all = gather_texts(comm, texts[comm.rank()]);
      ASSERT_EQ(all, std::vector<std::string>(texts.begin(), texts.begin() + ranks));
      // Nobody says anything.
      ASSERT_EQ(gather_texts(comm, ""), std::vector<std::string>(ranks));
    });
  }
}

TEST(Gather, ValuesInRankOrder) {
  run_ranks(3, [&](Communicator& comm) {
    ASSERT_EQ(gather(comm, 10 * comm.rank()), (std::vector<int>{0, 10, 20}));
  });
}

TEST(Broadcast, TextsOfRankZero) {
  for (const std::string& text : {std::string(), std::string("hello"), std::string(70000, 'y')}) {
    run_ranks(3, [&](Communicator& comm) {
      ASSERT_EQ(broadcast_text(comm, comm.rank() == 0 ? text : "something else"), text);
    });
  }
}

// The sums are those of the tree over virtual ranks, whoever computed them.
TEST(SumMetrics, DoesNotDependOnThePlacement) {
  for (const std::int64_t v : {1, 3, 4, 6, 8}) {
    const auto of = [](std::int64_t i) {
      const double x = 1.0 / static_cast<double>(3 + i);
      return MetricSums{.loss = x * 1e10,
                        .loss_weight = x,
                        .samples = 2.0 * static_cast<double>(i),
                        .correct = x * x,
                        .correct5 = -x,
                        .targets = 1e-9 * x};
    };
    const SumTree tree(v);
    for (const int ranks : {1, 2, 3, 4}) {
      if (ranks > v) continue;
      run_ranks(ranks, [&](Communicator& comm) {
        const VirtualRange range = virtual_range(v, comm.rank(), ranks);
        std::vector<MetricSums> mine;
        for (std::int64_t i = range.first; i < range.last; ++i) mine.push_back(of(i));
        const MetricSums sums = sum_metrics(comm, v, mine);
        for (const auto field :
             {&MetricSums::loss, &MetricSums::loss_weight, &MetricSums::samples,
              &MetricSums::correct, &MetricSums::correct5, &MetricSums::targets}) {
          ASSERT_EQ(sums.*field, tree_sum(tree, [&](std::int64_t i) { return of(i).*field; }))
              << "V " << v << ", R " << ranks;
        }
      });
    }
  }
}

}  // namespace
}  // namespace dtrain::test
