// The instruction set that CPU kernels use. It belongs to the recipe, because other kernels give
// other bits.
#pragma once

#include <string>

namespace dtrain {

// Limits oneDNN and Highway to `cpu_isa` ("auto" or a name of the schema); once per process, before
// the first operator. Returns the name of what is in force, as checkpoints and summaries have it.
// Throws ConfigError if the machine lacks it, naming what it has.
std::string select_cpu_isa(const std::string& cpu_isa);

}  // namespace dtrain
