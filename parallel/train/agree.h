// What all ranks must have in common before step 1. A difference is found here, with its name,
// rather than as a wrong sum later.
#pragma once

#include <string>
#include <vector>

#include "dtrain/core/config/config.h"
#include "dtrain/core/nn/arena.h"
#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

// One fact and the remedy if ranks differ in it: "program version", "0.1.0", "start one build on
// all hosts".
struct Fact {
  std::string name;
  std::string value;
  std::string remedy;
};

// Collective. Throws ConfigError on all ranks that names the fact, the ranks and their values.
void agree(Communicator& comm, const std::vector<Fact>& facts);

// Collective. Throws ConfigError naming the first parameter or buffer in which ranks differ:
// "fc.weight: rank 0 [10, 32], rank 1 [12, 32]".
void agree_on_model(Communicator& comm, const ArenaLayout& layout);

// Collective. Compares the weights of all ranks and returns their digest; throws InternalError
// naming the tensors and ranks that differ from rank 0.
std::string check_same_weights(Communicator& comm, const ParameterArena& arena);

}  // namespace dtrain
