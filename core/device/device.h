// A device is where tensors live and kernels run: so far a slice of this machine's processors.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

enum class DeviceKind : std::uint8_t { cpu };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu:0".
std::string to_string(Device device);

// Parses "cpu" or "cpu:1". Throws ConfigError naming what this build has.
Device parse_device(const std::string& text);

}  // namespace dtrain
