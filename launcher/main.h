// The command line of dtrain as one function, for dtrain itself and for programs that bring models
// or data sets of their own:
//
//   int main(int argc, char** argv) {
//     dtrain::Registry registry = dtrain::builtin_registry();
//     registry.models.add(...);
//     return dtrain::run_main(argc, argv, registry);
//   }
//
// The program is started again for each rank, so whatever main does before this call happens in
// every rank too.
#pragma once

#include "dtrain/parallel/train/registry.h"

namespace dtrain {

// Returns the exit code (see exit_code.h). Call it from the main thread.
int run_main(int argc, char** argv, const Registry& registry);
int run_main(int argc, char** argv);  // with the built-in models and data sets

}  // namespace dtrain
