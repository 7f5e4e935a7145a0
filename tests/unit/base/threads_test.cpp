#include "dtrain/core/base/threads.h"

#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/base/thread_pool.h"

namespace dtrain {
namespace {

// Runs `body` in a child and returns its exit code; limits set there do not touch this process.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(ThreadsTest, PoolThatCannotStartIsAnErrorWithARemedy) {
  const int code = in_child([] {
    // The limit of processes does not bind root.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 77;
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 77;
    try {
      ThreadPool pool(4);
      return 1;
    } catch (const DeviceError& error) {
      const std::string text = error.what();
      return text.find("thread 2 of 4") != std::string::npos &&
                     text.find("ulimit -u") != std::string::npos
                 ? 0
                 : 2;
    }
  });
  if (code == 77) GTEST_SKIP() << "cannot lower the limit of processes here";
  EXPECT_EQ(code, 0);
}

TEST(ThreadsTest, StartedThreadRuns) {
  bool ran = false;
  std::thread thread = start_thread("a thread", [&] { ran = true; });
  thread.join();
  EXPECT_TRUE(ran);
}

TEST(TemporaryFolderTest, BadTmpdirIsNamed) {
  EXPECT_EQ(in_child([] {
              ::setenv("TMPDIR", "relative/place", 1);
              try {
                const TemporaryDirectory folder;
                return 1;
              } catch (const ConfigError& error) {
                return std::string(error.what()).find("TMPDIR=relative/place") == 0 ? 0 : 2;
              }
            }),
            0);
}

TEST(TemporaryFolderTest, EmptyTmpdirMeansTmp) {
  EXPECT_EQ(in_child([] {
              ::setenv("TMPDIR", "", 1);
              const TemporaryDirectory folder;
              return folder.path().parent_path() == "/tmp" ? 0 : 1;
            }),
            0);
}

TEST(ErrnoTextTest, OutOfDescriptorsNamesTheLimit) {
  EXPECT_EQ(in_child([] {
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = 77;
              ::setrlimit(RLIMIT_NOFILE, &limit);
              return errno_text(EMFILE) ==
                             "Too many open files (EMFILE); raise the limit of open "
                             "files, now 77 (ulimit -n)"
                         ? 0
                         : 1;
            }),
            0);
}

}  // namespace
}  // namespace dtrain
