// Tests run with the instruction set that DTRAIN_TEST_ISA names, or the machine's best. A machine
// that lacks it skips them.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/isa.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* name = std::getenv("DTRAIN_TEST_ISA")) {
    try {
      dtrain::select_cpu_isa(name);
    } catch (const dtrain::ConfigError& error) {
      std::printf("[  SKIPPED ] %s\n", error.what());
      return 0;
    }
  }
  return RUN_ALL_TESTS();
}
