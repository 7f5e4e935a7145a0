#include "dtrain/launcher/rank_report.h"

#include <array>
#include <climits>
#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

class RankReportTest : public testing::Test {
 protected:
  RankReportTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
  }
  std::vector<RankReport> read() { return reader_.read(read_.get()); }
  UniqueFd read_, write_;
  ReportReader reader_;
};

TEST_F(RankReportTest, ArrivesAsItWasSent) {
  EXPECT_TRUE(read().empty());
  send_report(write_.get(), {2, "comm", "rank 3 is gone\n\"quoted\"", 3, 17, 12345});
  send_report(write_.get(), {1, "data", "x.csv: record 5: 'a'", -1, 18, 12346});
  const auto reports = read();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].rank, 2);
  EXPECT_EQ(reports[0].kind, "comm");
  EXPECT_EQ(reports[0].error, "rank 3 is gone\n\"quoted\"");
  EXPECT_EQ(reports[0].blamed_rank, 3);
  EXPECT_EQ(reports[0].step, 17);
  EXPECT_EQ(reports[0].time_ns, 12345);
  EXPECT_EQ(reports[1].error, "x.csv: record 5: 'a'");
  EXPECT_TRUE(read().empty());
}

TEST_F(RankReportTest, IsShortenedToWhatIsWrittenAtOnce) {
  send_report(write_.get(), {0, "data", std::string(100000, '"'), -1, 1, 1});
  const auto reports = read();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_GT(reports[0].error.size(), 1000u);
  EXPECT_TRUE(reports[0].error.ends_with(" [...]"));
}

TEST_F(RankReportTest, SurvivesBytesThatAreNoText) {
  send_report(write_.get(), {0, "data", "bad \xff\xfe bytes", -1, 1, 1});
  EXPECT_EQ(read().size(), 1u);
}

TEST_F(RankReportTest, IgnoresWhatIsNoReport) {
  const std::string junk = "hello\n{}\n{\"rank\": \"x\"}\n[1]\n";
  ASSERT_EQ(::write(write_.get(), junk.data(), junk.size()), static_cast<ssize_t>(junk.size()));
  EXPECT_TRUE(read().empty());
  send_report(write_.get(), {3, "comm", "x", -1, 1, 1});
  EXPECT_EQ(read().size(), 1u);
}

}  // namespace
}  // namespace dtrain
