#include "dtrain/core/base/cpu_count.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/output_folder.h"
#include "dtrain/parallel/store/unix_store_server.h"

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
  const UnixStoreServer store;
  job.store = store.address();
  const JobEnd end = supervise(job);
  if (end.failure) fmt::print(stderr, "{}", to_text(*end.failure));
  return code_with_output(end);
}

}  // namespace dtrain
