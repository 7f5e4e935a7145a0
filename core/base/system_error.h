// Messages of system errors.
#pragma once

#include <string>
#include <system_error>

namespace dtrain {

// What happened, with the errno value named as by errno_text():
// "out/summary.json: cannot create: No space left on device (ENOSPC)".
std::string system_error_text(const std::system_error& error);

}  // namespace dtrain
