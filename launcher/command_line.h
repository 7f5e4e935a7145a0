// The command line of dtrain, as a value.
//
//   CommandLine line = parse_command_line({"--nproc", "2", "c.yaml", "optimizer.lr=0.05"});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/launcher/supervisor.h"
#include "dtrain/models/sampling.h"

namespace dtrain {

enum class Command : std::uint8_t {
  run,
  check,
  evaluate,
  sample,
  version,
  launch,
  help,
  help_config,
  rank  // started by the launcher, not by people
};

struct CommandLine {
  Command command = Command::run;
  std::string config;                  // path of the recipe
  std::vector<std::string> overrides;  // "optimizer.lr=0.05"
  int nproc = 1;                       // 0: auto
  bool resume = false;
  std::string resume_from;
  bool overwrite = false;
  std::string log_dir;
  int max_restarts = 0;
  ShownRanks shown = ShownRanks::all;
  std::string weights;      // of eval and sample; empty: the newest checkpoint of the output folder
  std::string prompt;       // of sample
  std::int64_t tokens = 0;  // of sample: to write behind the prompt
  SamplingOptions sampling;
  std::vector<std::string> program;  // of launch
  std::string help;                  // text to print
};

// `arguments`: without the program's name. Throws ConfigError that says what is wrong, with the
// nearest valid name for what is unknown.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace dtrain
