// Memory without a name that other processes can map: it exists as long as someone holds its
// descriptor or has it mapped, so a killed run leaves nothing behind.
#pragma once

#include <cstddef>

#include "dtrain/core/base/files.h"
#include "dtrain/parallel/comm/direct/segments.h"

namespace dtrain {

// Reserves zeroed memory: all of its pages exist, and its size is sealed, so that no access can
// fail later. `name` shows in /proc/PID/maps. Throws DeviceError.
UniqueFd create_memory_file(const char* name, std::size_t bytes);

// Maps it for reading and writing. Throws CommError if it is not sealed or shorter than `bytes`.
Segment map_memory_file(const UniqueFd& fd, std::size_t bytes);

}  // namespace dtrain
