// `dtrain launch`: supervision, output and signals, with small programs as ranks.
#include <array>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <set>
#include <signal.h>
#include <unistd.h>

#include "program.h"
#include <gtest/gtest.h>

#include "dtrain/core/base/clock.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

Program start_dtrain(std::vector<std::string> arguments,
                     const std::vector<std::string>& variables = {}) {
  arguments.insert(arguments.begin(), DTRAIN_PROGRAM);
  return Program(arguments, variables);
}

// "[r2] 17" -> 17, for ranks that print their process number.
std::vector<pid_t> pids_in(const std::string& output) {
  std::vector<pid_t> pids;
  for (const std::string& line : lines_of(output)) {
    pids.push_back(static_cast<pid_t>(std::stol(line.substr(line.find(' ') + 1))));
  }
  return pids;
}

TEST(Launch, GivesRanksTheirEnvironment) {
  const Outcome outcome = run_dtrain(
      launch_shell(3,
                   "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR; "
                   "[ $MASTER_PORT -gt 1023 ]"));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  const auto lines = lines_of(outcome.output);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()),
            (std::set<std::string>{"0 0 3 3 0 127.0.0.1", "[r1] 1 1 3 3 0 127.0.0.1",
                                   "[r2] 2 2 3 3 0 127.0.0.1"}));
}

// dtrain ignores SIGXFSZ; the programs that it starts do not.
TEST(Launch, LeavesProgramsTheSignalOfALimitedFile) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "file").string();
  const Outcome outcome =
      run_dtrain(launch_shell(1, "ulimit -f 1; exec head -c 100000 /dev/zero > " + file));
  EXPECT_EQ(outcome.code, 128 + SIGXFSZ) << outcome.error;
}

TEST(Launch, SharesOutProcessorsUnlessTold) {
  const std::vector<std::string> print = launch_shell(1, "echo $OMP_NUM_THREADS");
  EXPECT_GE(std::stoi(run_dtrain(print).output), 1);
  EXPECT_EQ(run_dtrain(print, {"OMP_NUM_THREADS=3"}).output, "3\n");
}

TEST(Launch, EndsWithTheCodeOfTheRankThatFailed) {
  for (const auto& [action, code, words] : std::vector<std::array<std::string, 3>>{
           {"exit 7", "7", "exit code 7"},
           {"kill -SEGV $$", "139", "signal 11 (SIGSEGV)"},
           {"kill -KILL $$", "137", "signal 9 (SIGKILL); possibly out of memory"},
           {"exit 1", "1", "exit code 1"}}) {
    const TimePoint start = Clock::now();
    const Outcome outcome = run_dtrain(
        launch_shell(4, "if [ $RANK = 2 ]; then echo last words; " + action + "; fi; sleep 60"));
    EXPECT_EQ(outcome.code, std::stoi(code)) << action;
    EXPECT_LT(seconds_since(start), 10) << action;
    EXPECT_NE(outcome.error.find("error: rank 2 failed (host "), std::string::npos)
        << outcome.error;
    EXPECT_NE(outcome.error.find(words), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find("| last words"), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find("stopped because rank 2 failed"), std::string::npos);
    EXPECT_EQ(outcome.error.find("rank 1 failed"), std::string::npos) << outcome.error;
  }
}

TEST(Launch, EndsRanksThatIgnoreSigterm) {
  const TimePoint start = Clock::now();
  const Outcome outcome =
      run_dtrain(launch_shell(3,
                              "trap '' TERM; if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; "
                              "while true; do sleep 1; done"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_LT(seconds_since(start), 10);
}

TEST(Launch, SaysThatAProgramCannotRun) {
  const Outcome outcome = run_dtrain({"launch", "--nproc", "2", "--", "/no/such/program"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("/no/such/program: cannot be executed"), std::string::npos);
}

TEST(Launch, NeverMixesLinesOfRanks) {
  const TemporaryDirectory folder;
  const Outcome outcome = run_dtrain(
      {"launch", "--nproc", "4", "--log-dir", folder.path() / "logs", "--", DTRAIN_CHATTER});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  std::map<char, std::vector<std::string>> by_rank;
  for (std::string line : lines_of(outcome.output)) {
    char letter = 'a';
    if (line.starts_with("[r")) {
      letter = static_cast<char>('a' + (line[2] - '0'));
      line.erase(0, 5);
    }
    by_rank[letter].push_back(line);
  }
  ASSERT_EQ(by_rank.size(), 4u);
  for (const auto& [letter, lines] : by_rank) {
    ASSERT_EQ(lines.size(), 1001u);
    for (int i = 0; i < 1000; ++i) {
      std::string expected = std::to_string(i) + " ";
      expected.resize(300, letter);
      ASSERT_EQ(lines[static_cast<std::size_t>(i)], expected);
    }
    EXPECT_EQ(lines[1000], "block " + std::string(20000, letter));
    const std::string log =
        read_file(folder.path() / "logs" / ("rank-" + std::to_string(letter - 'a') + ".log"));
    EXPECT_EQ(lines_of(log), lines);
  }
}

TEST(Launch, ShowsTheRanksAskedFor) {
  auto arguments = launch_shell(3, "echo from $RANK");
  arguments.insert(arguments.begin() + 1, {"--show", "first"});
  EXPECT_EQ(run_dtrain(arguments).output, "from 0\n");
  arguments[2] = "failures";
  EXPECT_EQ(run_dtrain(arguments).output, "");
  arguments.back() = "echo from $RANK; exit $RANK";
  EXPECT_NE(run_dtrain(arguments).error.find("| from "), std::string::npos);
}

TEST(Launch, GoesOnWhenItsReaderLeaves) {
  const TemporaryDirectory folder;
  const fs::path done = folder.path() / "done";
  const Outcome outcome =
      Program({"sh", "-c",
               std::string("{ ") + DTRAIN_PROGRAM + " launch --nproc 2 -- sh -c '" +
                   DTRAIN_CHATTER + "; sleep 0.3; echo again; echo x >> " + done.string() +
                   "'; echo code $? >&2; } | head -n 1"})
          .wait();
  EXPECT_EQ(lines_of(outcome.output).size(), 1u);
  EXPECT_NE(outcome.error.find("code 0"), std::string::npos) << outcome.error;
  EXPECT_EQ(read_file(done), "x\nx\n");
}

TEST(Launch, FailsIfItsOutputIsLost) {
  Program program(
      {"sh", "-c",
       std::string("exec ") + DTRAIN_PROGRAM + " launch --nproc 1 -- echo result > /dev/full"});
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.error.find("standard output: No space left on device"), std::string::npos)
      << outcome.error;
}

TEST(Launch, PassesSignalsOnOnce) {
  for (const auto& [signal, code] :
       std::vector<std::pair<int, int>>{{SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}}) {
    Program program = start_dtrain(launch_shell(3, "echo $$; exec sleep 60"));
    ASSERT_TRUE(program.wait_for_lines(3)) << program.error();
    const auto pids = pids_in(program.output());
    program.signal(signal);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.error.find("failed"), std::string::npos) << outcome.error;
    for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
  }
}

TEST(Launch, LeavesTheExitCodeToProgramsThatHandleSignals) {
  Program program = start_dtrain(launch_shell(2,
                                              "trap 'echo stopping; exit 85' USR1; echo ready; "
                                              "while true; do sleep 0.05; done"));
  ASSERT_TRUE(program.wait_for_lines(2)) << program.error();
  program.signal(SIGUSR1);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 85);
  EXPECT_EQ(lines_of(outcome.output).size(), 4u) << outcome.output;
}

TEST(Launch, EndsAtOnceAtASecondSignal) {
  Program program =
      start_dtrain(launch_shell(2, "trap '' TERM; echo $$; while true; do sleep 0.05; done"));
  ASSERT_TRUE(program.wait_for_lines(2)) << program.error();
  const auto pids = pids_in(program.output());
  program.signal(SIGTERM);
  const Deadline deadline(20);
  while (program.error().find("stopping all ranks") == std::string::npos && !deadline.passed()) {
    ::usleep(5000);
  }
  for (const pid_t pid : pids) EXPECT_TRUE(is_alive(pid));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().code, 143);
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
}

TEST(Launch, KeepsSighupIgnoredIfItWasAtTheStart) {
  Program program({"sh", "-c",
                   std::string("trap '' HUP; exec ") + DTRAIN_PROGRAM +
                       " launch --nproc 2 -- sh -c 'echo ready; sleep 0.5; echo done'"});
  ASSERT_TRUE(program.wait_for_lines(2)) << program.error();
  program.signal(SIGHUP);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(lines_of(outcome.output).size(), 4u);
}

TEST(Launch, TakesRanksAlongWhenItIsKilled) {
  const TemporaryDirectory folder;
  Program program =
      start_dtrain(launch_shell(4, "echo $$; exec sleep 60"), {"TMPDIR=" + folder.path().string()});
  ASSERT_TRUE(program.wait_for_lines(4)) << program.error();
  const auto pids = pids_in(program.output());
  ASSERT_EQ(pids.size(), 4u);
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait().code, 137);
  EXPECT_TRUE(wait_for_end(pids, 5));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Launch, EndsWhatRanksLeaveBehind) {
  // One in the rank's process group, one that left it.
  const Outcome outcome = run_dtrain(
      launch_shell(2, "sleep 60 & echo $!; setsid sh -c 'echo $$; exec sleep 60' & sleep 0.3"));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  const auto pids = pids_in(outcome.output);
  EXPECT_EQ(pids.size(), 4u) << outcome.output;
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
}

class LaunchAsProcess1 : public testing::Test {
 protected:
  void SetUp() override {
    if (Program({"unshare", "-pf", "--mount-proc", "true"}).wait().code != 0) {
      GTEST_SKIP() << "no right to make a namespace of processes";
    }
  }
  static std::vector<std::string> in_namespace(std::vector<std::string> arguments) {
    const std::vector<std::string> before = {"unshare", "-pf", "--mount-proc", DTRAIN_PROGRAM};
    arguments.insert(arguments.begin(), before.begin(), before.end());
    return arguments;
  }
};

TEST_F(LaunchAsProcess1, StopsOnSigterm) {
  Program program(in_namespace(launch_shell(2, "echo ready; exec sleep 60")));
  ASSERT_TRUE(program.wait_for_lines(2)) << program.error();
  const std::string pid = std::to_string(program.pid());
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  pid_t launcher = 0;
  ASSERT_TRUE(children >> launcher);
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(program.wait().code, 143);
}

TEST_F(LaunchAsProcess1, ReapsOrphans) {
  // The grandchild ends after its parent, as a child of process 1.
  const Outcome outcome =
      Program(in_namespace(launch_shell(1,
                                        "sh -c 'sleep 0.2 & echo $!' > /dev/null; sleep 1; "
                                        "grep -l '^State:.*Z' /proc/[0-9]*/status | wc -l")))
          .wait();
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(std::stoi(outcome.output), 0);
}

TEST(Command, RefusesBadInputWithCodeTwoAndWritesNothing) {
  const TemporaryDirectory folder;
  const fs::path config = folder.path() / "c.yaml";
  std::ofstream(config) << "output: " << (folder.path() / "run").string() << "\n"
                        << "model: {name: mlp, inputs: 1, outputs: 1}\nlearing_rate: 1\n";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {config.string()},
                                             {"check", config.string()},
                                             {(folder.path() / "none.yaml").string()},
                                             {config.string(), "--nporc", "2"}}) {
    const Outcome outcome = run_dtrain(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_NE(outcome.error, "");
    EXPECT_EQ(outcome.output, "");
  }
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
}

TEST(Command, PrintsVersionAndHelp) {
  const Outcome version = run_dtrain({"version"});
  EXPECT_EQ(version.code, 0);
  for (const char* word : {"dtrain ", "oneDNN", "Highway", "protobuf", "instruction set"}) {
    EXPECT_NE(version.output.find(word), std::string::npos) << version.output;
  }
  EXPECT_EQ(run_dtrain({"--help"}).code, 0);
  EXPECT_NE(run_dtrain({"help", "config"}).output.find("optimizer"), std::string::npos);
}

}  // namespace
}  // namespace dtrain
