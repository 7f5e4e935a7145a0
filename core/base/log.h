// Logging: spdlog's default logger, set up once per process.
//
// Rank 0 speaks; other ranks speak from warning up, with the prefix "[r3] ". Libraries call
// spdlog::info and friends and never set the logger up themselves.
#pragma once

#include <string>

#include <spdlog/spdlog.h>

namespace dtrain {

// Lines go to standard error. `prefix` ("[r3] ", or empty) stands before each message.
void set_up_logging(const std::string& prefix, spdlog::level::level_enum level);

// Prefix and level of a rank, as design 8 has them.
void set_up_rank_logging(int rank);

}  // namespace dtrain
