// What each command of the command line does. All return an exit code; errors found before a rank
// starts are thrown as Error.
#pragma once

#include "dtrain/launcher/command_line.h"
#include "dtrain/parallel/train/registry.h"

namespace dtrain {

int run_command(const CommandLine& line, const Registry& registry);       // run.cpp
int evaluate_command(const CommandLine& line, const Registry& registry);  // run.cpp
int sample_command(const CommandLine& line, const Registry& registry);    // sample.cpp
int check_command(const CommandLine& line, const Registry& registry);     // check.cpp
int launch_command(const CommandLine& line);                              // launch.cpp
int version_command();                                                    // version.cpp

// Processes to start: as asked for, or for `auto` as many as there are usable cores for, and not
// more than the recipe has virtual ranks.
int process_count(const CommandLine& line, const config::TrainConfig& values);

}  // namespace dtrain
