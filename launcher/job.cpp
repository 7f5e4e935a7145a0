#include "dtrain/launcher/job.h"

#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace dtrain {

launcher::Job make_job(const Config& config, const RunOptions& options) {
  launcher::Job job;
  *job.mutable_config() = config.values;
  job.set_source(config.source);
  job.set_name(config.name);
  for (const auto& [key, origin] : config.origins) (*job.mutable_origins())[key] = origin;
  job.set_resume(options.resume);
  job.set_resume_from(options.resume_from);
  job.set_overwrite(options.overwrite);
  return job;
}

Config config_of(const launcher::Job& job, const KindTable& kinds) {
  Config config;
  config.values = job.config();
  config.source = job.source();
  config.name = job.name();
  config.origins.insert(job.origins().begin(), job.origins().end());
  config.kinds = kinds;
  return config;
}

RunOptions options_of(const launcher::Job& job) {
  RunOptions options;
  options.resume = job.resume();
  options.resume_from = job.resume_from();
  options.overwrite = job.overwrite();
  return options;
}

UniqueFd share_job(const launcher::Job& job) {
  const std::string bytes = job.SerializeAsString();
  UniqueFd fd(::memfd_create("dtrain-job", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw std::system_error(errno, std::generic_category(), "cannot make the job's file");
  write_all(fd.get(), std::as_bytes(std::span(bytes)), "the job's file");
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return fd;
}

launcher::Job read_job(int fd) {
  struct stat status;
  DTRAIN_CHECK(::fstat(fd, &status) == 0 && status.st_size > 0, "descriptor {} holds no job", fd);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  // The descriptor's position is shared with the other ranks: read at 0, whatever it is.
  const ssize_t n = ::pread(fd, bytes.data(), bytes.size(), 0);
  launcher::Job job;
  DTRAIN_CHECK(n == status.st_size && job.ParseFromString(bytes), "descriptor {} holds no job", fd);
  return job;
}

}  // namespace dtrain
