#include "dtrain/core/metrics/step_log.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <signal.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

using Json = nlohmann::ordered_json;

class StepLogTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = spdlog::default_logger();
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(warnings_));
    logger->set_pattern("%v");
    spdlog::set_default_logger(logger);
  }
  void TearDown() override { spdlog::set_default_logger(before_); }

  void write_raw(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
  static Json step(int number) { return {{"event", "step"}, {"step", number}}; }

  TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_.path() / "log.jsonl";
  std::ostringstream warnings_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(StepLogTest, OneLinePerEventInTheOrderOfItsKeys) {
  StepLog log(path_, -1);
  log.write({{"event", "step"}, {"step", 1}, {"loss", 0.1}, {"lr", 1e-5}});
  // Each line is there at once, not when the log is closed.
  EXPECT_EQ(read_file(path_), "{\"event\":\"step\",\"step\":1,\"loss\":0.1,\"lr\":1e-05}\n");
  log.write({{"event", "end"}});
  EXPECT_TRUE(read_file(path_).ends_with("1e-05}\n{\"event\":\"end\"}\n"));
}

TEST_F(StepLogTest, NonFiniteNumbersAreSpelled) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  StepLog log(path_, -1);
  log.write({{"loss", std::nan("")}, {"norms", {1.5, inf, -inf}}, {"text", "NaN"}});
  EXPECT_EQ(read_file(path_),
            "{\"loss\":\"NaN\",\"norms\":[1.5,\"Infinity\",\"-Infinity\"],\"text\":\"NaN\"}\n");
}

TEST_F(StepLogTest, TextThatIsNotUtf8IsReplacedNotThrown) {
  StepLog log(path_, -1);
  log.write({{"path", "a\xff"}});
  EXPECT_EQ(read_file(path_), "{\"path\":\"a\xef\xbf\xbd\"}\n");
}

TEST_F(StepLogTest, FreshRunStartsAfresh) {
  write_raw("{\"step\":900}\n");
  StepLog log(path_, -1);
  log.write(step(1));
  EXPECT_EQ(read_file(path_), "{\"event\":\"step\",\"step\":1}\n");
}

TEST_F(StepLogTest, EachStepStandsOnceAfterResume) {
  // Killed at step 15 with a checkpoint of step 10, resumed to 20.
  {
    StepLog log(path_, -1);
    log.write({{"event", "start"}});
    for (int i = 1; i <= 15; ++i) log.write(step(i));
    log.write({{"event", "evaluation"}, {"step", 15}});
  }
  {
    StepLog log(path_, 10);
    log.write({{"event", "resume"}, {"step", 10}});
    for (int i = 11; i <= 20; ++i) log.write(step(i));
  }
  std::map<int, int> times;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line);
    EXPECT_NE(event["event"], "evaluation");
    if (event["event"] == "step") ++times[event["step"]];
  }
  EXPECT_EQ(times.size(), 20u);
  for (const auto& [number, count] : times) EXPECT_EQ(count, 1) << number;
  EXPECT_EQ(times.begin()->first, 1);
  EXPECT_EQ(warnings_.str(), "");
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".tmp"));
}

TEST_F(StepLogTest, TornLastLineIsCutAway) {
  const std::string good = "{\"event\":\"start\"}\n{\"step\":1}\n{\"step\":2}\n";
  for (const std::string& torn : std::vector<std::string>{
           "{\"step\":3,\"lo", "{\"step\":2}", "{\"step\":3,\"lo\n", std::string(100, '\0')}) {
    write_raw(good + torn);
    StepLog log(path_, 2);
    log.write(step(3));
    EXPECT_EQ(read_file(path_), good + "{\"event\":\"step\",\"step\":3}\n") << torn;
  }
}

TEST_F(StepLogTest, LineWithoutStepGoesWithTheOneBefore) {
  write_raw(
      "{\"event\":\"start\"}\n{\"step\":1}\n{\"note\":1}\n{\"step\":2}\n{\"event\":\"end\"}\n"
      "{\"event\":\"resume\",\"step\":1}\n{\"note\":2}\n");
  StepLog log(path_, 1);
  EXPECT_EQ(read_file(path_),
            "{\"event\":\"start\"}\n{\"step\":1}\n{\"note\":1}\n{\"event\":\"resume\",\"step\":1}\n"
            "{\"note\":2}\n");
}

TEST_F(StepLogTest, ResumeWithoutALog) {
  StepLog log(path_, 10);
  log.write(step(11));
  EXPECT_EQ(read_file(path_), "{\"event\":\"step\",\"step\":11}\n");
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(StepLogTest, ResumeAtStepZeroKeepsNoStep) {
  write_raw("{\"event\":\"start\"}\n{\"step\":1}\n");
  StepLog log(path_, 0);
  EXPECT_EQ(read_file(path_), "{\"event\":\"start\"}\n");
}

TEST_F(StepLogTest, LongLogIsCutWithoutReadingItWhole) {
  std::string content;
  for (int i = 1; i <= 20'000; ++i) {
    content += "{\"step\":" + std::to_string(i) + ",\"pad\":\"" + std::string(100, 'x') + "\"}\n";
  }
  write_raw(content);
  StepLog log(path_, 15'000);
  const std::string kept = read_file(path_);
  EXPECT_EQ(kept, content.substr(0, content.find("{\"step\":15001,")));
}

TEST_F(StepLogTest, UnwritableLogWarnsOnceAndNeverThrows) {
  const auto path = folder_.path() / "no" / "log.jsonl";
  StepLog log(path, -1);
  for (int i = 0; i < 3; ++i) log.write(step(i));
  EXPECT_EQ(warnings_.str(), path.string() +
                                 ": cannot open: No such file or directory (ENOENT); training goes "
                                 "on, the log has gaps\n");
}

TEST_F(StepLogTest, FullDiskLeavesWholeLines) {
  // In a child: the limit holds for the whole process.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    StepLog log(path_, -1);
    for (int i = 1; i <= 20; ++i) log.write(step(i));
    const std::string expected = path_.string() +
                                 ": cannot write: No space left on device (ENOSPC); training goes "
                                 "on, the log has gaps\n";
    ::_exit(warnings_.str() == expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_file(path_),
            "{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2}\n"
            "{\"event\":\"step\",\"step\":3}\n");
}

}  // namespace
}  // namespace dtrain
