// The job's description on its way from the launcher to its ranks: a sealed, unnamed file whose
// descriptor they inherit.
#pragma once

#include "dtrain/core/base/files.h"
#include "dtrain/core/config/config.h"
#include "dtrain/launcher/job.pb.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {

launcher::Job make_job(const Config& config, const RunOptions& options);
Config config_of(const launcher::Job& job, const KindTable& kinds);
RunOptions options_of(const launcher::Job& job);

// Throws std::system_error.
UniqueFd share_job(const launcher::Job& job);
// Throws InternalError if the descriptor holds none.
launcher::Job read_job(int fd);

}  // namespace dtrain
