// What a recipe leaves open, and what its keys demand of one another.
#pragma once

#include <string>

#include "dtrain/core/config/config.h"
#include "dtrain/core/config/problems.h"
#include "dtrain/core/config/reader.h"

namespace dtrain::config_internal {

// Sets output, batch sizes and virtual ranks, epochs, weight decay, peak rate and what a data set
// shares with the model where they are not given, and checks keys against one another. `name` is
// the recipe's; `derived` gets the paths of keys that follow from others.
void resolve(config::TrainConfig& recipe, const std::string& name, const Folders& folders,
             const KindTable& kinds, Given& given, std::vector<std::string>& derived,
             Problems& problems);

}  // namespace dtrain::config_internal
