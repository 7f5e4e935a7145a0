#include "dtrain/core/metrics/progress.h"

#include <fcntl.h>
#include <limits>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

ProgressLine line_of(std::int64_t step, std::int64_t steps) {
  return {.step = step,
          .steps = steps,
          .epoch = 1,
          .loss = 0.123456,
          .lr = 0.05,
          .grad_norm = 1.2345,
          .samples_per_s = 12345,
          .step_ms = 12.3,
          .data_wait_ms = 0.1,
          .seconds_left = 83};
}

// What can be read from the descriptor now.
std::string drain(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 50) <= 0 || (ready.revents & POLLIN) == 0) return text;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

TEST(FormatProgress, Line) {
  EXPECT_EQ(format_progress_line(line_of(120, 235)),
            "step   120/235 | epoch 1 | loss 0.123456 | norm 1.2345 | lr 5.00e-02 | "
            "12,345 samples/s | data 0.1 ms | 12.3 ms");
  ProgressLine line = line_of(7, 0);
  line.samples_per_s = 1234567;
  line.loss = std::numeric_limits<double>::quiet_NaN();
  line.grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(format_progress_line(line),
            "step      7 | epoch 1 | loss nan | norm inf | lr 5.00e-02 | 1,234,567 samples/s | "
            "data 0.1 ms | 12.3 ms");
  line.samples_per_s = 999;
  EXPECT_NE(format_progress_line(line).find("| 999 samples/s |"), std::string::npos);
}

TEST(FormatProgress, BarFitsAnyWidth) {
  EXPECT_EQ(format_progress_bar(line_of(120, 240), 100),
            "[==========>         ]  50% step   120/240 | loss 0.1235 | 12,345 samples/s | ETA "
            "1:23 | data 0.1 ms");
  for (int columns = 0; columns < 250; ++columns) {
    EXPECT_LE(format_progress_bar(line_of(99, 240), columns).size(),
              static_cast<std::size_t>(columns));
  }
  EXPECT_EQ(format_progress_bar(line_of(240, 240), 45),
            "[=========] 100% step   240/240 | loss 0.1235");
  // Never 100% before the end.
  EXPECT_NE(format_progress_bar(line_of(9999, 10000), 200).find(" 99% "), std::string::npos);
  EXPECT_EQ(format_progress_bar(line_of(5, 0), 40), "step      5 | loss 0.1235");
  EXPECT_EQ(format_progress_bar(line_of(5, 0), -3), "");
}

TEST(FormatProgress, Duration) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(6.6), "0:07");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(11045), "3:04:05");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 240), "2d 03:04");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
}

TEST(Progress, PipeGetsFirstEveryNthAndLast) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  std::string expected;
  {
    Progress progress(10, writer.get());
    for (int step = 1; step <= 25; ++step) {
      const bool due = step == 1 || step == 10 || step == 20 || step == 25;
      EXPECT_EQ(progress.due(step, 25), due) << step;
      progress.step(line_of(step, 25));
      if (due) expected += format_progress_line(line_of(step, 25)) + "\n";
    }
    progress.pause();
  }
  EXPECT_EQ(drain(reader.get()), expected);
}

class ProgressOnATerminal : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    master_.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(master_);
    ASSERT_EQ(::grantpt(master_.get()), 0);
    ASSERT_EQ(::unlockpt(master_.get()), 0);
    terminal_.reset(::open(::ptsname(master_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(terminal_);
    winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::ioctl(terminal_.get(), TIOCSWINSZ, &size), 0);
  }
  UniqueFd master_, terminal_;
};

TEST_F(ProgressOnATerminal, DrawsInPlaceAndLeavesTheCursorOnAFreshLine) {
  const std::string clear = "\r\x1b[K";
  {
    Progress progress(10, terminal_.get());
    progress.step(line_of(1, 3));
    EXPECT_EQ(drain(master_.get()), clear + format_progress_bar(line_of(1, 3), 59));
    progress.pause();
    EXPECT_EQ(drain(master_.get()), clear);
    progress.pause();
    EXPECT_EQ(drain(master_.get()), "");
    progress.step(line_of(3, 3));
    EXPECT_EQ(drain(master_.get()), clear + format_progress_bar(line_of(3, 3), 59));
  }
  EXPECT_EQ(drain(master_.get()), "\r\n");
}

TEST_F(ProgressOnATerminal, IsDrawnAtMostTenTimesASecond) {
  Progress progress(1, terminal_.get());
  const TimePoint start = Clock::now();
  int draws = 0;
  for (int step = 1; step < 2'000'000; ++step) {
    if (!progress.due(step, 2'000'000)) continue;
    progress.step(line_of(step, 2'000'000));
    if (++draws % 10 == 0) drain(master_.get());
  }
  EXPECT_GE(draws, 1);
  EXPECT_LE(draws, 2 + 10 * seconds_since(start));
}

TEST_F(ProgressOnATerminal, FollowsTheWidth) {
  Progress progress(1, terminal_.get());
  winsize size{.ws_row = 24, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(terminal_.get(), TIOCSWINSZ, &size), 0);
  progress.step(line_of(1, 3));
  EXPECT_EQ(drain(master_.get()), "\r\x1b[K" + format_progress_bar(line_of(1, 3), 19));
}

TEST_F(ProgressOnATerminal, DumbTerminalGetsLines) {
  ::setenv("TERM", "dumb", 1);
  Progress progress(1, terminal_.get());
  progress.step(line_of(1, 3));
  EXPECT_EQ(drain(master_.get()), format_progress_line(line_of(1, 3)) + "\r\n");
}

TEST(Progress, ClosedDescriptorIsNoError) {
  Progress progress(1, -1);
  progress.step(line_of(1, 3));
  progress.pause();
}

}  // namespace
}  // namespace dtrain
