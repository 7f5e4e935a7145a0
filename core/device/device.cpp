#include "dtrain/core/device/device.h"

#include <charconv>

#include "dtrain/core/base/error.h"

namespace dtrain {

std::string to_string(Device device) {
  return fmt::format("cpu:{}", device.index);
}

Device parse_device(const std::string& text) {
  const std::string kind = text.substr(0, text.find(':'));
  Device device;
  if (kind == "cpu") {
    if (kind.size() == text.size()) return device;
    const char* first = text.data() + kind.size() + 1;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, device.index);
    if (error == std::errc() && end == last && device.index >= 0) return device;
  }
  throw ConfigError(
      fmt::format("device '{}' is not available: this build has cpu (write cpu or cpu:N)", text));
}

}  // namespace dtrain
