#include "dtrain/core/base/threads.h"

#include <system_error>
#include <utility>

#include "dtrain/core/base/error.h"

namespace dtrain {

std::thread start_thread(std::string_view what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw DeviceError(fmt::format(
        "cannot start {}: {}; use fewer processes, cores or workers, or raise the limit "
        "of processes (ulimit -u, or pids.max of the control group)",
        what, errno_text(error.code().value())));
  }
}

}  // namespace dtrain
