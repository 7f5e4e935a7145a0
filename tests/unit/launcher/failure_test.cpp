#include "dtrain/launcher/failure.h"

#include <fstream>
#include <signal.h>

#include <gtest/gtest.h>

#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

RankEnd running_to_the_end(int rank) {
  RankEnd end;
  end.rank = rank;
  end.pid = 100 + rank;
  end.ended = true;
  end.orderly = true;
  end.step = 5;
  end.time_ns = 1000;
  return end;
}

RankEnd by_signal(int rank, int signal, std::int64_t time) {
  RankEnd end = running_to_the_end(rank);
  end.orderly = false;
  end.signal = signal;
  end.time_ns = time;
  return end;
}

RankEnd by_exit(int rank, int code, std::int64_t time) {
  RankEnd end = by_signal(rank, 0, time);
  end.exit_code = code;
  return end;
}

RankEnd by_error(int rank, const std::string& kind, std::int64_t time, int blamed = -1) {
  RankEnd end = by_exit(rank, 1, time + 100);
  end.report = RankReport{rank, kind, "error of rank " + std::to_string(rank), blamed, 5, time};
  return end;
}

RankEnd killed_by_launcher(int rank) {
  RankEnd end = by_signal(rank, SIGKILL, 5000);
  end.killed_by_us = true;
  return end;
}

TEST(FindCause, IsNobodyIfAllEndedWell) {
  const std::vector<RankEnd> ends = {running_to_the_end(0), running_to_the_end(1)};
  EXPECT_EQ(find_cause(ends), -1);
  EXPECT_FALSE(explain_failure(ends, 0).has_value());
}

TEST(FindCause, IsTheRankThatDiedNotThoseThatMissedIt) {
  // Seen last, because the launcher read the others' reports before.
  const std::vector<RankEnd> ends = {by_error(0, "comm", 10, 2), by_error(1, "comm", 20, 2),
                                     by_signal(2, SIGSEGV, 900), killed_by_launcher(3)};
  EXPECT_EQ(find_cause(ends), 2);
}

TEST(FindCause, IsTheEarliestOfSeveralErrors) {
  const std::vector<RankEnd> ends = {by_error(0, "data", 30), by_error(1, "data", 20),
                                     by_error(2, "comm", 10, 1)};
  EXPECT_EQ(find_cause(ends), 1);
}

TEST(FindCause, IsTheRankThatAllWaitFor) {
  const std::vector<RankEnd> ends = {by_error(0, "comm", 20, 3), by_error(1, "comm", 10, 3),
                                     killed_by_launcher(2), killed_by_launcher(3)};
  EXPECT_EQ(find_cause(ends), 3);
}

TEST(FindCause, FollowsChainsOfBlameAndEndsInCircles) {
  EXPECT_EQ(find_cause(std::vector<RankEnd>{by_error(0, "comm", 10, 1), by_error(1, "comm", 20, 2),
                                            killed_by_launcher(2)}),
            2);
  EXPECT_GE(
      find_cause(std::vector<RankEnd>{by_error(0, "comm", 10, 1), by_error(1, "comm", 20, 0)}), 0);
  EXPECT_EQ(find_cause(std::vector<RankEnd>{by_error(0, "comm", 10, 77), running_to_the_end(1)}),
            0);
}

TEST(FindCause, IsWhoLostContactIfNothingElseIsKnown) {
  const std::vector<RankEnd> ends = {by_error(0, "comm", 20), by_error(1, "comm", 10)};
  EXPECT_EQ(find_cause(ends), 1);
}

TEST(ExplainFailure, PassesOnCodeAndSignal) {
  const auto exited =
      explain_failure(std::vector<RankEnd>{running_to_the_end(0), by_exit(1, 7, 10)}, 0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit_code, 7);
  EXPECT_EQ(exited->error, "exit code 7");
  EXPECT_EQ(to_json(*exited)["exit_code"], 7);
  EXPECT_FALSE(to_json(*exited).contains("error"));

  const auto crashed = explain_failure(std::vector<RankEnd>{by_signal(0, SIGSEGV, 10)}, 0);
  EXPECT_EQ(crashed->exit_code, 139);
  EXPECT_EQ(crashed->error, "signal 11 (SIGSEGV)");
  EXPECT_EQ(to_json(*crashed)["signal"], 11);

  const auto killed = explain_failure(std::vector<RankEnd>{by_signal(0, SIGKILL, 10)}, 2);
  EXPECT_EQ(killed->exit_code, 137);
  EXPECT_NE(killed->error.find("possibly out of memory"), std::string::npos) << killed->error;
  EXPECT_NE(killed->error.find("2 processes"), std::string::npos) << killed->error;
}

TEST(ExplainFailure, CallsAnEarlyEndWithCodeZeroAFailure) {
  const auto failure = explain_failure(std::vector<RankEnd>{by_exit(0, 0, 10)}, 0);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->exit_code, 1);
}

TEST(ExplainFailure, DoesNotTakeItsOwnSigkillForTheCause) {
  RankEnd end = by_error(0, "data", 10);
  end.signal = SIGKILL;
  end.killed_by_us = true;
  const auto failure = explain_failure(std::vector<RankEnd>{end}, 0);
  EXPECT_EQ(failure->exit_code, 1);
  EXPECT_EQ(failure->error, "error of rank 0");
}

TEST(ExplainFailure, TellsWhatTheOthersSawOfAStalledRank) {
  const auto failure =
      explain_failure(std::vector<RankEnd>{by_error(0, "comm", 10, 1), killed_by_launcher(1)}, 0);
  EXPECT_EQ(failure->cause.rank, 1);
  EXPECT_EQ(failure->exit_code, 1);
  EXPECT_NE(failure->error.find("rank 0 waited for it: error of rank 0"), std::string::npos)
      << failure->error;
  const ordered_json json = to_json(*failure);
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["step"], 5);
  EXPECT_TRUE(json.contains("error"));
}

TEST(FailureText, BeginsWithRankHostPidStepAndError) {
  std::vector<RankEnd> ends = {by_error(0, "comm", 20, 2), killed_by_launcher(1),
                               by_error(2, "data", 10)};
  ends[2].last_lines = {"reading x.png", "error: x.png is empty"};
  ends[2].log = "runs/a/rank-2.log";
  const std::string text = to_text(*explain_failure(ends, 0));
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_EQ(first,
            "error: rank 2 failed (host " + host_name() + ", pid 102, step 5): error of rank 2");
  EXPECT_NE(text.find("runs/a/rank-2.log"), std::string::npos);
  EXPECT_NE(text.find("  | error: x.png is empty\n"), std::string::npos);
  const std::size_t others = text.find("stopped because rank 2 failed");
  ASSERT_NE(others, std::string::npos);
  EXPECT_GT(text.find("rank 0"), others);
  EXPECT_GT(text.find("rank 1"), others);
}

TEST(FailureText, SaysWhichAttemptItWas) {
  JobFailure failure = *explain_failure(std::vector<RankEnd>{by_exit(0, 7, 10)}, 0);
  EXPECT_EQ(to_text(failure).find("attempt"), std::string::npos);
  failure.attempt = 1;
  failure.attempts = 3;
  EXPECT_NE(to_text(failure).find("attempt 2 of 3"), std::string::npos);
}

TEST(JobFailure, IsNotWorthRestartingIfItWouldHappenAgain) {
  for (const auto& [kind, worth] : std::vector<std::pair<std::string, bool>>{
           {"config", false}, {"nonfinite", false}, {"data", true}, {"comm", true}, {"", true}}) {
    JobFailure failure;
    failure.kind = kind;
    EXPECT_EQ(failure.worth_restarting(), worth) << kind;
  }
}

TEST(WriteStatus, KeepsWhatRankZeroWrote) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "summary.json";
  std::ofstream(path) << R"({"status": "done", "steps": 12, "failure": {"rank": 9}})";
  write_status(path, "failed", ordered_json{{"rank", 2}});
  const auto summary = ordered_json::parse(read_file(path));
  EXPECT_EQ(summary,
            (ordered_json{{"status", "failed"}, {"steps", 12}, {"failure", {{"rank", 2}}}}));
  write_status(path, "stopped", {});
  EXPECT_EQ(ordered_json::parse(read_file(path)),
            (ordered_json{{"status", "stopped"}, {"steps", 12}}));
}

TEST(WriteStatus, ReplacesWhatCannotBeRead) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "summary.json";
  write_status(path, "failed", ordered_json{{"rank", 2}});
  EXPECT_EQ(ordered_json::parse(read_file(path))["failure"]["rank"], 2);
  std::ofstream(path) << "{ half";
  write_status(path, "failed", ordered_json{{"rank", 3}});
  EXPECT_EQ(ordered_json::parse(read_file(path))["failure"]["rank"], 3);
}

}  // namespace
}  // namespace dtrain
