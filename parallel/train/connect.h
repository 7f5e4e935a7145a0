// How a rank joins the others.
#pragma once

#include <memory>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/store/store.h"
#include "dtrain/parallel/train/rank_info.h"

namespace dtrain {

// A group, and the store in which it met; the store outlives the group.
struct Connection {
  std::unique_ptr<DescriptorStore> store;  // null for a world of one
  std::unique_ptr<Communicator> comm;
};

// Waits up to parallel.connect_timeout for all ranks. Throws CommError.
Connection connect(const RankInfo& rank, const config::Parallel& parallel);

// Another group of the same ranks, for collectives inside a pass.
std::unique_ptr<Communicator> connect_passes(const Connection& connection, const RankInfo& rank,
                                             const config::Parallel& parallel);

}  // namespace dtrain
