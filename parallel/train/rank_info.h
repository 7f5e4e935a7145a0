// Which rank this process is, of how many, and how it meets the others.
#pragma once

#include <string>

namespace dtrain {

struct RankInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  std::string store;  // address of the store; empty for a world of one

  // Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK and DTRAIN_STORE: torchrun's
  // names. A world of one where they are unset. Throws ConfigError for values that cannot be.
  static RankInfo from_environment();
};

}  // namespace dtrain
