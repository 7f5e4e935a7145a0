// `optimizer.lr=0.05` on the command line: values that replace those of the file.
#pragma once

#include <string>
#include <vector>

#include "dtrain/core/config/yaml_tree.h"

namespace dtrain::config_internal {

// Applies each `a.b.c=value` in turn; the value is YAML. A later one wins over an equal earlier
// one; one that would throw away another (`a.b=1 a={...}`) is a problem. `a.b=null` takes a key of
// the file back, so that its default holds.
void apply_overrides(YamlNode& root, const std::vector<std::string>& overrides, Problems& problems);

}  // namespace dtrain::config_internal
