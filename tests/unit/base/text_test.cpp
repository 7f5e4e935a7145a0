#include "dtrain/core/base/text.h"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(Text, CountsInSingularAndPlural) {
  EXPECT_EQ(counted(1, "process"), "1 process");
  EXPECT_EQ(counted(2, "process"), "2 processes");
  EXPECT_EQ(counted(0, "virtual rank"), "0 virtual ranks");
  EXPECT_EQ(counted(1, "core"), "1 core");
}

}  // namespace
}  // namespace dtrain
