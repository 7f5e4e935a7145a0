// The schema as Markdown, from which docs/configuration.md is made: a test compares the two, so
// that the documentation cannot go stale.
#pragma once

#include <string>

#include "dtrain/core/config/config.h"

namespace dtrain {

// One table for each section and each kind of `kinds`: key, type, default, range, meaning.
std::string describe_schema(const KindTable& kinds);

}  // namespace dtrain
