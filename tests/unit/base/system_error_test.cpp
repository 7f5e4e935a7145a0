#include "dtrain/core/base/system_error.h"

#include <cerrno>
#include <future>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(SystemErrorText, NamesTheErrorOnce) {
  EXPECT_EQ(system_error_text(std::system_error(ENOSPC, std::generic_category(), "a/b: cannot")),
            "a/b: cannot: No space left on device (ENOSPC)");
  EXPECT_EQ(system_error_text(std::system_error(EIO, std::system_category())),
            "Input/output error (EIO)");
}

TEST(SystemErrorText, LeavesErrorsOfOthersAsTheyAre) {
  const std::system_error error(std::make_error_code(std::future_errc::no_state), "here");
  EXPECT_EQ(system_error_text(error), error.what());
}

}  // namespace
}  // namespace dtrain
