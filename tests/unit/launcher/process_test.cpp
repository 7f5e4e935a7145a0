#include "dtrain/launcher/process.h"

#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "dtrain/core/base/error.h"
#include "dtrain/launcher/descendants.h"
#include "dtrain/launcher/exit_code.h"
#include "dtrain/launcher/free_port.h"

namespace dtrain {
namespace {

ProcessSpec shell(const std::string& script) {
  ProcessSpec spec;
  spec.arguments = {"sh", "-c", script};
  spec.environment = environment_with({"GREETING=hello world"});
  ::sigemptyset(&spec.blocked_signals);
  return spec;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(StartProcess, GivesEnvironmentInputAndGroup) {
  EXPECT_EQ(exit_code_of(start_process(shell("[ \"$GREETING\" = 'hello world' ]"))), 0);
  EXPECT_EQ(exit_code_of(start_process(shell("read line; [ -z \"$line\" ]"))), 0);
  EXPECT_EQ(exit_code_of(start_process(shell("exit 7"))), 7);
  const pid_t pid = start_process(shell("sleep 30"));
  EXPECT_EQ(::getpgid(pid), pid);
  ::kill(-pid, SIGKILL);
  EXPECT_EQ(exit_code_of(pid), -SIGKILL);
}

TEST(StartProcess, NamesAProgramThatCannotRun) {
  ProcessSpec spec = shell("");
  for (const char* program : {"/no/such/program", "no-such-program-anywhere", "/"}) {
    spec.arguments = {program};
    try {
      start_process(spec);
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(program), std::string::npos);
    }
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no zombie is left
}

TEST(EnvironmentWith, ReplacesAndAdds) {
  ::setenv("DTRAIN_TEST_OLD", "1", 1);
  ::setenv("DTRAIN_TEST_OLDER", "1", 1);
  const auto environment = environment_with({"DTRAIN_TEST_OLD=2", "DTRAIN_TEST_NEW=3"});
  auto count = [&](const std::string& entry) {
    return std::count(environment.begin(), environment.end(), entry);
  };
  EXPECT_EQ(count("DTRAIN_TEST_OLD=2"), 1);
  EXPECT_EQ(count("DTRAIN_TEST_OLD=1"), 0);
  EXPECT_EQ(count("DTRAIN_TEST_OLDER=1"), 1);
  EXPECT_EQ(count("DTRAIN_TEST_NEW=3"), 1);
}

TEST(OwnExecutable, CanBeStartedAgain) {
  EXPECT_EQ(::access(own_executable().c_str(), X_OK), 0);
}

TEST(EndChildren, SparesThoseOfOthers) {
  const pid_t mine = start_process(shell("sleep 30"));
  const auto before = current_children();
  EXPECT_TRUE(before.contains(mine));
  const pid_t other = start_process(shell("sleep 30"));
  end_children_except(before);
  EXPECT_EQ(::kill(other, 0), -1);
  EXPECT_EQ(::kill(mine, 0), 0);
  end_children_except({});
  EXPECT_TRUE(current_children().empty());
}

TEST(FreePort, IsAPort) {
  const int port = find_free_port();
  EXPECT_GT(port, 1023);
  EXPECT_LT(port, 65536);
}

TEST(ExitCode, FollowsTheTable) {
  EXPECT_EQ(exit_code::of_end(RunEnd::done, 0), 0);
  EXPECT_EQ(exit_code::of_end(RunEnd::nothing, 0), 0);
  EXPECT_EQ(exit_code::of_end(RunEnd::stopped, SIGTERM), 143);
  EXPECT_EQ(exit_code::of_end(RunEnd::stopped, SIGINT), 130);
  EXPECT_EQ(exit_code::of_end(RunEnd::stopped, SIGHUP), 129);
  EXPECT_EQ(exit_code::of_end(RunEnd::stopped, SIGUSR1), 85);
  EXPECT_EQ(exit_code::of_end(RunEnd::out_of_time, SIGUSR1), 85);
  for (int code : {0, 85, 129, 130, 143}) EXPECT_TRUE(exit_code::is_orderly(code)) << code;
  for (int code : {1, 2, 7, 137, 139}) EXPECT_FALSE(exit_code::is_orderly(code)) << code;
}

}  // namespace
}  // namespace dtrain
