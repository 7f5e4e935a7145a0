#include "dtrain/core/base/log.h"

#include <memory>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override { before_ = spdlog::default_logger(); }
  void TearDown() override { spdlog::set_default_logger(before_); }
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(LogTest, RankZeroSpeaks) {
  testing::internal::CaptureStderr();
  set_up_rank_logging(0);
  spdlog::info("loss {}", 0.5);
  spdlog::warn("slow");
  spdlog::error("bad");
  spdlog::debug("detail");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "loss 0.5\nwarning: slow\nerror: bad\n");
}

TEST_F(LogTest, OthersSpeakFromWarningUpAndSayWhoTheyAre) {
  testing::internal::CaptureStderr();
  set_up_rank_logging(3);
  spdlog::info("loss");
  spdlog::warn("slow");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[r3] warning: slow\n");
}

}  // namespace
}  // namespace dtrain
