#include "dtrain/parallel/train/rank_info.h"

#include <charconv>
#include <climits>
#include <string_view>

#include <stdlib.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// The variable as a number of at least `least`; `fallback` if it is unset or empty.
int number(const char* name, int least, int fallback) {
  const std::string text = variable(name);
  if (text.empty()) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw ConfigError(fmt::format(
        "environment variable {}='{}' is not a number of at least {}: unset it, or let dtrain, "
        "mpirun or srun set it",
        name, text, least));
  }
  return value;
}

void check_below(const char* name, int value, const char* limit_name, int limit) {
  if (value < limit) return;
  throw ConfigError(fmt::format("environment variable {}={} must be less than {}={}", name, value,
                                limit_name, limit));
}

}  // namespace

RankInfo RankInfo::from_environment() {
  RankInfo info;
  info.world_size = number("WORLD_SIZE", 1, 1);
  if (info.world_size > 1 && variable("RANK").empty()) {
    throw ConfigError(fmt::format(
        "environment variable WORLD_SIZE={} is set, but RANK is not: set both, or neither",
        info.world_size));
  }
  info.rank = number("RANK", 0, 0);
  check_below("RANK", info.rank, "WORLD_SIZE", info.world_size);
  info.node_rank = number("NODE_RANK", 0, 0);
  info.local_world_size = number("LOCAL_WORLD_SIZE", 1, info.world_size);
  if (info.local_world_size > info.world_size) {
    throw ConfigError(fmt::format("environment variable LOCAL_WORLD_SIZE={} exceeds WORLD_SIZE={}",
                                  info.local_world_size, info.world_size));
  }
  info.local_rank = number("LOCAL_RANK", 0, info.rank % info.local_world_size);
  check_below("LOCAL_RANK", info.local_rank, "LOCAL_WORLD_SIZE", info.local_world_size);
  info.store = variable("DTRAIN_STORE");
  return info;
}

}  // namespace dtrain
