#include "dtrain/parallel/train/connect.h"

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/local/local_group.h"
#include "dtrain/parallel/comm/shm/shm_communicator.h"
#include "dtrain/parallel/store/unix_store.h"

namespace dtrain {

Connection connect(const RankInfo& rank, const config::Parallel& parallel) {
  const CommOptions options{.timeout = parallel.first_step_timeout(),
                            .connect_timeout = parallel.connect_timeout()};
  Connection connection;
  if (rank.world_size == 1) {
    connection.comm = std::move(make_local_group(1, options).front());
    return connection;
  }
  if (rank.store.empty()) {
    throw ConfigError(fmt::format(
        "WORLD_SIZE={} but DTRAIN_STORE is not set: start the ranks with `dtrain --nproc {}`",
        rank.world_size, rank.world_size));
  }
  connection.store = std::make_unique<UnixStore>(rank.store);
  connection.comm = make_shm_communicator(*connection.store, rank.rank, rank.world_size, options);
  return connection;
}

std::unique_ptr<Communicator> connect_passes(const Connection& connection, const RankInfo& rank,
                                             const config::Parallel& parallel) {
  const CommOptions options{.timeout = parallel.first_step_timeout(),
                            .connect_timeout = parallel.connect_timeout(),
                            .name = "passes"};
  if (rank.world_size == 1) return std::move(make_local_group(1, options).front());
  return make_shm_communicator(*connection.store, rank.rank, rank.world_size, options);
}

}  // namespace dtrain
