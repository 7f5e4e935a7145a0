// Going on from a checkpoint: which one, whether it fits, and what it restores.
#pragma once

#include <optional>
#include <string>

#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/config/config.h"
#include "dtrain/parallel/comm/communicator.h"
#include "dtrain/parallel/train/replica.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {

// Collective. Rank 0 finds the checkpoint that `options` ask for and loads weights and optimizer
// state; all ranks get its state and values. Nothing if there is none to resume. Throws ConfigError
// where the checkpoint's recipe does not fit this one: rules in Note [What a resumed run may
// change].
std::optional<checkpoint::RunState> resume(Communicator& comm, const Config& config,
                                           const KindTable& kinds, const RunOptions& options,
                                           const std::string& cpu_isa,
                                           const std::string& dataset_identity, Replica& replica);

// What resume() would refuse, found before a rank starts: throws ConfigError, or CheckpointError
// where `options` name a checkpoint that is none. A newest checkpoint that cannot be read is left
// to resume(), which may find an older one. Returns whether there is a checkpoint to go on from.
bool check_resume(const Config& config, const KindTable& kinds, const RunOptions& options,
                  const std::string& cpu_isa, const std::string& dataset_identity);

// What load_weights() would refuse of the weights that `from` means; see resolve_weights.
void check_weights(const std::string& from, bool strict, const ArenaLayout& layout);

// The same for the weights of init.from, if there are any; names that key.
void check_initial_weights(const config::Init& init, const ArenaLayout& layout);

}  // namespace dtrain
