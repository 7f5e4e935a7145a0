// MANIFEST of a checkpoint: what the folder must hold, and the proof that it does.
//
// Plain text, a line `name size digest` per file in name order; the last line has the same form and
// speaks of the lines before it, so that a cut or changed manifest is seen too:
//
//   model.safetensors 4194432 0f4c7a...
//   optimizer.safetensors 4194416 a81b02...
//   state.pb 1733 77e3d5...
//   MANIFEST 178 5d20c9...
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "dtrain/core/checkpoint/digest_file.h"

namespace dtrain {

// By file name, MANIFEST itself left out.
using Manifest = std::map<std::string, FileDigest>;

inline constexpr std::string_view manifest_name = "MANIFEST";

std::string to_text(const Manifest& manifest);

// Throws CheckpointError with `path` and line: cut, changed, malformed, or names outside of the
// folder.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace dtrain
