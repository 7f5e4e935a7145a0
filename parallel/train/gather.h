// Small collectives of the training loop, at step borders, on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dtrain/core/metrics/metric.h"
#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

// Every rank's value, in rank order.
template <typename T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather(Communicator& comm, const T& mine) {
  std::vector<T> all(comm.size());
  InlineStream stream;
  comm.all_gather(stream, std::as_bytes(std::span(&mine, 1)),
                  std::as_writable_bytes(std::span(all)))
      .wait();
  return all;
}

// Every rank's text, of any length.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

// Rank 0's text, on all ranks.
std::string broadcast_text(Communicator& comm, const std::string& text);

void broadcast_bytes(Communicator& comm, std::span<std::byte> bytes);

// Metrics of all virtual ranks, each computed by the rank that owns it: `mine` are those of this
// rank's range, in order. Added in tree order, so that the sums do not depend on the placement.
MetricSums sum_metrics(Communicator& comm, std::int64_t virtual_ranks,
                       std::span<const MetricSums> mine);

}  // namespace dtrain
