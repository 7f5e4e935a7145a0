#include "dtrain/core/base/cpu_count.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/output_folder.h"
#include "dtrain/launcher/rank_store.h"

namespace dtrain {

int launch_command(const CommandLine& line) {
  JobSpec job;
  job.command = line.program;
  job.ranks = line.nproc > 0 ? line.nproc : cpu_count().usable;
  job.shown = line.shown;
  if (!line.log_dir.empty()) {
    create_folder(line.log_dir, "--log-dir");
    job.log_folder = line.log_dir;
  }
  // For programs that use dtrain's library.
  const RankStore store;
  job.store = store.path();
  job.inherited.push_back(store.fd());
  const JobEnd end = supervise(job);
  if (end.failure) fmt::print(stderr, "{}", to_text(*end.failure));
  return end.exit_code;
}

}  // namespace dtrain
