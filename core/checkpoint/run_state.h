// state.pb of a checkpoint: written and read with the same checks, so that what one run writes the
// next one reads, and a damaged or foreign file is an error that names the field.
//
//   checkpoint::RunState state = parse_run_state(bytes, "step-00000100/state.pb");
#pragma once

#include <string>
#include <string_view>

#include "dtrain/core/checkpoint/state.pb.h"

namespace dtrain {

// Bytes of a state file. Deterministic. Throws CheckpointError, naming `path`, as parse_run_state
// would.
std::string serialize_run_state(const checkpoint::RunState& state, const std::string& path);

// Throws CheckpointError that names `path` and field: unknown or missing fields, negative or huge
// counts, doubles that are not finite, text that is not UTF-8, JSON that is not JSON.
checkpoint::RunState parse_run_state(std::string_view bytes, const std::string& path);

}  // namespace dtrain
