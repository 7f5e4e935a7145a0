#include "dtrain/parallel/train/gather.h"

#include <algorithm>

#include "dtrain/core/base/error.h"

namespace dtrain {

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  const std::vector<std::uint64_t> sizes = gather(comm, std::uint64_t{mine.size()});
  const std::size_t longest = *std::ranges::max_element(sizes);
  std::string padded = mine;
  padded.resize(longest);
  std::string all(longest * comm.size(), '\0');
  InlineStream stream;
  comm.all_gather(stream, std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)))
      .wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    texts.push_back(all.substr(rank * longest, sizes[rank]));
  }
  return texts;
}

void broadcast_bytes(Communicator& comm, std::span<std::byte> bytes) {
  InlineStream stream;
  comm.broadcast(stream, bytes, 0).wait();
}

std::string broadcast_text(Communicator& comm, const std::string& text) {
  std::uint64_t size = text.size();
  broadcast_bytes(comm, std::as_writable_bytes(std::span(&size, 1)));
  std::string received = text;
  received.resize(size);
  broadcast_bytes(comm, std::as_writable_bytes(std::span(received)));
  return received;
}

MetricSums sum_metrics(Communicator& comm, std::int64_t virtual_ranks,
                       std::span<const MetricSums> mine) {
  // Ranks own ranges of different sizes: each sends as many as the largest has.
  const std::int64_t widest = (virtual_ranks + comm.size() - 1) / comm.size();
  DTRAIN_CHECK(static_cast<std::int64_t>(mine.size()) <= widest, "{} metrics of at most {}",
               mine.size(), widest);
  std::vector<MetricSums> sent(mine.begin(), mine.end());
  sent.resize(widest);
  std::vector<MetricSums> all(widest * comm.size());
  InlineStream stream;
  comm.all_gather(stream, std::as_bytes(std::span(sent)), std::as_writable_bytes(std::span(all)))
      .wait();
  std::vector<MetricSums> by_virtual_rank;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const VirtualRange range = virtual_range(virtual_ranks, rank, comm.size());
    const auto first = all.begin() + rank * widest;
    by_virtual_rank.insert(by_virtual_rank.end(), first, first + range.size());
  }
  const SumTree tree(virtual_ranks);
  const auto sum = [&](double MetricSums::*field) {
    return tree_sum(tree, [&](std::int64_t v) { return by_virtual_rank[v].*field; });
  };
  return {.loss = sum(&MetricSums::loss),
          .loss_weight = sum(&MetricSums::loss_weight),
          .samples = sum(&MetricSums::samples),
          .correct = sum(&MetricSums::correct),
          .correct5 = sum(&MetricSums::correct5),
          .targets = sum(&MetricSums::targets)};
}

}  // namespace dtrain
