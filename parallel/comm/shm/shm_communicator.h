// A group whose ranks are processes of one node, in shared memory.
//
// Gradient arenas lie in memory files without a name, passed by descriptor through the store; peers
// add straight from each other's buckets. Nothing is left behind however a rank ends, and neither
// the size of /dev/shm nor names in it matter: the limit is the memory of the machine, or of the
// control group.
#pragma once

#include <memory>

#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/store/store.h"

namespace dtrain {

// Collective: waits for all ranks, at most options.connect_timeout seconds; throws CommError naming
// a rank that did not come. The group is found in the store by options.name; the n-th group of a
// name that a rank makes meets the n-th of the others. The store must outlive the communicator,
// which uses it in allocate().
std::unique_ptr<Communicator> make_shm_communicator(DescriptorStore& store, int rank, int size,
                                                    const CommOptions& options = {});

}  // namespace dtrain
