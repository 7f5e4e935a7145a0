#include "dtrain/core/base/error.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(Error, KindsAndMessages) {
  EXPECT_EQ(ConfigError("x").kind(), ErrorKind::config);
  EXPECT_EQ(DeviceError("x").kind(), ErrorKind::device);
  EXPECT_EQ(NonFiniteError("x").kind(), ErrorKind::nonfinite);
  EXPECT_STREQ(CheckpointError("a/b", "cut").what(), "a/b: cut");
  const DataError record("train.csv", 17, "not a number");
  EXPECT_STREQ(record.what(), "train.csv: record 17: not a number");
  EXPECT_EQ(record.path(), "train.csv");
  EXPECT_EQ(record.record(), 17);
  EXPECT_STREQ(DataError("train.csv", -1, "empty").what(), "train.csv: empty");
  EXPECT_EQ(CommError("x").blamed_rank(), -1);
  EXPECT_EQ(CommError("x", 3).blamed_rank(), 3);
  // All are caught as one.
  EXPECT_THROW(throw InternalError("x"), Error);
}

TEST(Error, NamesOfKinds) {
  EXPECT_EQ(to_string(ErrorKind::config), "config");
  EXPECT_EQ(to_string(ErrorKind::data), "data");
  EXPECT_EQ(to_string(ErrorKind::comm), "comm");
  EXPECT_EQ(to_string(ErrorKind::device), "device");
  EXPECT_EQ(to_string(ErrorKind::checkpoint), "checkpoint");
  EXPECT_EQ(to_string(ErrorKind::nonfinite), "nonfinite");
  EXPECT_EQ(to_string(ErrorKind::internal), "internal");
}

TEST(Error, ErrnoText) {
  EXPECT_EQ(errno_text(ENOSPC), "No space left on device (ENOSPC)");
  EXPECT_EQ(errno_text(99999), "unknown error (99999)");
}

TEST(Error, CheckSaysWhereAndWhy) {
  int evaluated = 0;
  DTRAIN_CHECK(++evaluated == 1, "never");
  EXPECT_EQ(evaluated, 1);
  try {
    DTRAIN_CHECK(evaluated == 2, "evaluated {} times", evaluated);
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("error_test.cpp:"), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with(": internal error: evaluated == 2 does not hold: evaluated 1 times"))
        << text;
  }
}

}  // namespace
}  // namespace dtrain
