#include "dtrain/core/base/version.h"

#include <dnnl.h>
#include <google/protobuf/stubs/common.h>
#include <nlohmann/json.hpp>
#include <spdlog/version.h>
#include <xxhash.h>
#include <zlib.h>

#include "dtrain/core/base/cpu_count.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/exit_code.h"

namespace dtrain {

int version_command() {
  const dnnl_version_t* dnnl = ::dnnl_version();
  const CpuCount cpus = cpu_count();
  const unsigned xxhash = XXH_versionNumber();
  fmt::print("dtrain {}\n", version());
  fmt::print("  compiler         {} {}\n", DTRAIN_COMPILER, __VERSION__);
  fmt::print("  oneDNN           {}.{}.{}\n", dnnl->major, dnnl->minor, dnnl->patch);
  fmt::print("  Highway          {}\n", DTRAIN_HIGHWAY_VERSION);
  fmt::print("  protobuf         {}\n",
             google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
  fmt::print("  yaml-cpp         {}\n", DTRAIN_YAML_CPP_VERSION);
  fmt::print("  nlohmann-json    {}.{}.{}\n", NLOHMANN_JSON_VERSION_MAJOR,
             NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
  fmt::print("  fmt              {}.{}.{}\n", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
             FMT_VERSION % 100);
  fmt::print("  spdlog           {}.{}.{}\n", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH);
  fmt::print("  xxHash           {}.{}.{}\n", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
  fmt::print("  zlib             {}\n", ::zlibVersion());
  fmt::print("  instruction set  {}\n", select_cpu_isa("auto"));
  fmt::print("  processors       {} usable ({} in the affinity mask{})\n", cpus.usable,
             cpus.affinity,
             cpus.quota > 0 ? fmt::format(", cgroup quota {}", cpus.quota) : ", no cgroup quota");
  fmt::print("  devices          cpu\n");
  fmt::print("  transports       local, shm\n");
  return exit_code::done;
}

}  // namespace dtrain
