#include "dtrain/core/device/device.h"

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cpu:3"), (Device{DeviceKind::cpu, 3}));
  EXPECT_EQ(to_string(parse_device("cpu:12")), "cpu:12");
}

TEST(Device, RefusesWhatIsNotThere) {
  for (const char* text : {"", "gpu", "cuda:0", "cpu:", "cpu:-1", "cpu:x", "cpu:1x", "cpu: 1",
                           "cpu:99999999999", "CPU"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const ConfigError& e) {
      EXPECT_EQ(std::string(e.what()),
                "device '" + std::string(text) +
                    "' is not available: this build has cpu (write cpu or cpu:N)");
    }
  }
}

}  // namespace
}  // namespace dtrain
