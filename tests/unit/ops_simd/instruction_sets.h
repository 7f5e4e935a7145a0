// Runs a test on each instruction set that vector code has a version for.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace dtrain {

// Calls f once per instruction set that this machine and this build have.
template <class F>
void for_each_instruction_set(const F& f) {
  const std::int64_t supported = hwy::SupportedTargets();
  for (const std::int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3, HWY_NEON}) {
    if ((supported & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    f();
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace dtrain
