#include "dtrain/launcher/rank_store.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>

#include <fmt/format.h>

namespace dtrain {

RankStore::RankStore() : file_(::open(server_.socket_path().c_str(), O_PATH | O_CLOEXEC)) {
  if (!file_) {
    throw std::system_error(errno, std::generic_category(),
                            server_.socket_path().string() + ": cannot open");
  }
  std::error_code ignored;
  std::filesystem::remove(server_.socket_path(), ignored);
  std::filesystem::remove(server_.socket_path().parent_path(), ignored);
}

std::string RankStore::path() const {
  return fmt::format("/proc/self/fd/{}", file_.get());
}

}  // namespace dtrain
