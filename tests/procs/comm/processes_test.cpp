// The shared-memory group between real processes: exact sums, and ranks that are killed.
//
// The store is served from a process of its own, forked before there is any thread, so that the
// ranks can be forked from the test's main thread and inherit none of the server's descriptors.
#include <array>
#include <dirent.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/plan_tree_sum.h"
#include "dtrain/parallel/comm/shm/shm_communicator.h"
#include "dtrain/parallel/store/unix_store.h"
#include "dtrain/parallel/store/unix_store_server.h"

namespace dtrain {
namespace {
namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder, const std::string& prefix = "") {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) names.insert(name);
  }
  return names;
}

std::size_t open_descriptors() {
  return names_in("/proc/self/fd").size();
}

// A process that serves a store until told to stop.
class ServerProcess {
 public:
  ServerProcess() {
    std::array<int, 2> up{};
    std::array<int, 2> down{};
    if (::pipe(up.data()) != 0 || ::pipe(down.data()) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(down[1]);
      {
        UnixStoreServer server;
        const std::string path = server.address() + "\n";
        if (::write(up[1], path.data(), path.size()) < 0) ::_exit(1);
        char byte = 0;
        while (::read(down[0], &byte, 1) < 0) {
        }
      }
      ::_exit(0);
    }
    ::close(up[1]);
    ::close(down[0]);
    stop_.reset(down[1]);
    const UniqueFd out(up[0]);
    for (char c = 0; ::read(out.get(), &c, 1) == 1 && c != '\n';) path_ += c;
  }
  ~ServerProcess() {
    stop_.reset();
    ::waitpid(pid_, nullptr, 0);
  }
  void kill() { ::kill(pid_, SIGKILL); }
  const std::string& path() const { return path_; }

 private:
  pid_t pid_ = 0;
  UniqueFd stop_;
  std::string path_;
};

// What a rank's process reported before it ended.
struct Outcome {
  std::string text;
  int status = 0;
};

// Runs the body as `ranks` processes; the text that it returns is what it reports.
class RankProcesses {
 public:
  RankProcesses(int ranks, const std::function<std::string(int rank)>& body) {
    for (int r = 0; r < ranks; ++r) {
      std::array<int, 2> pipe{};
      if (::pipe(pipe.data()) != 0) throw std::runtime_error("pipe");
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        std::string text;
        try {
          text = body(r);
        } catch (const std::exception& e) {
          text = e.what();
        }
        const ssize_t n = ::write(pipe[1], text.data(), text.size());
        ::_exit(n == static_cast<ssize_t>(text.size()) ? 0 : 1);
      }
      ::close(pipe[1]);
      pids_.push_back(pid);
      outputs_.emplace_back(pipe[0]);
    }
  }
  ~RankProcesses() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
    for (const pid_t pid : pids_) {
      if (pid > 0) ::waitpid(pid, nullptr, 0);
    }
  }
  void kill(int rank, int signal) { ::kill(pids_[static_cast<std::size_t>(rank)], signal); }
  Outcome finish(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Outcome outcome;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = ::read(outputs_[r].get(), buffer.data(), buffer.size())) > 0;) {
      outcome.text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    ::waitpid(pids_[r], &outcome.status, 0);
    pids_[r] = 0;
    return outcome;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<UniqueFd> outputs_;
};

// A store key is how a rank tells the test where it is.
void wait_for_key(const std::string& path, const std::string& key) {
  UnixStore store(path);
  ASSERT_TRUE(store.wait(key, Deadline(30))) << key;
}

std::string steps_of_rank(const std::string& path, int rank, int ranks, int steps,
                          CommOptions options) {
  UnixStore store(path);
  const auto comm = make_shm_communicator(store, rank, ranks, options);
  constexpr std::size_t count = 300001;
  const auto memory = comm->allocate(count * sizeof(float));
  auto* values = reinterpret_cast<float*>(memory->local().data());
  const TreeSum plan = plan_tree_sum(SumTree(ranks), ranks, 1, 0);
  QueueStream stream("comm");
  for (int step = 0; step < steps; ++step) {
    if (step == 3) store.set("running/" + std::to_string(rank), "");
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + 1);
    comm->tree_sum(stream, *memory, plan, 0, count).wait();
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] != static_cast<float>(ranks * (ranks + 1) / 2)) return "wrong sum";
    }
    comm->all_gather(stream, {}, {}).wait();
  }
  return "done";
}

TEST(Processes, SumExactlyAndLeaveNothing) {
  const auto shared_before = names_in("/dev/shm");
  const auto folders_before = names_in(fs::temp_directory_path(), "dtrain-");
  const std::size_t descriptors_before = open_descriptors();
  {
    const ServerProcess server;
    RankProcesses ranks(4, [&](int rank) {
      const std::size_t descriptors = open_descriptors();
      std::string text = steps_of_rank(server.path(), rank, 4, 20, {.timeout = 60});
      if (open_descriptors() != descriptors) text += ", leaks descriptors";
      return text;
    });
    for (int r = 0; r < 4; ++r) EXPECT_EQ(ranks.finish(r).text, "done");
  }
  EXPECT_EQ(names_in("/dev/shm"), shared_before);
  EXPECT_EQ(names_in(fs::temp_directory_path(), "dtrain-"), folders_before);
  EXPECT_EQ(open_descriptors(), descriptors_before);
}

TEST(Processes, AKilledRankIsNamedByTheOthersLongBeforeTheTimeout) {
  for (int victim = 0; victim < 4; ++victim) {
    const auto shared_before = names_in("/dev/shm");
    const ServerProcess server;
    RankProcesses ranks(4, [&](int rank) {
      return steps_of_rank(server.path(), rank, 4, 1 << 30, {.timeout = 100});
    });
    wait_for_key(server.path(), "running/0");
    const TimePoint start = Clock::now();
    ranks.kill(victim, SIGKILL);
    for (int r = 0; r < 4; ++r) {
      if (r == victim) continue;
      const std::string text = ranks.finish(r).text;
      EXPECT_EQ(text.find("rank " + std::to_string(victim) + " has not "), 0u) << text;
      EXPECT_NE(text.find("and its process "), std::string::npos) << text;
      EXPECT_NE(text.find(" has ended; waiting: "), std::string::npos) << text;
    }
    // The victim has not been waited for: it was a zombie all the while.
    EXPECT_EQ(WTERMSIG(ranks.finish(victim).status), SIGKILL);
    EXPECT_LT(seconds_since(start), 10);
    EXPECT_EQ(names_in("/dev/shm"), shared_before);
  }
}

TEST(Processes, AStoppedRankIsNamedAtTheTimeout) {
  const ServerProcess server;
  RankProcesses ranks(
      3, [&](int rank) { return steps_of_rank(server.path(), rank, 3, 1 << 30, {.timeout = 1}); });
  wait_for_key(server.path(), "running/1");
  ranks.kill(1, SIGSTOP);
  const std::string first = ranks.finish(0).text;
  EXPECT_EQ(first.find("rank 1 has not "), 0u) << first;
  EXPECT_NE(first.find("; waiting: 0, 2"), std::string::npos) << first;
  EXPECT_EQ(ranks.finish(2).text, first);
  ranks.kill(1, SIGCONT);
  EXPECT_EQ(ranks.finish(1).text, first);
}

TEST(Processes, MemoryComesFromNeitherTmpfsNorFiles) {
  // No file may be written at all, and none of it counts as locked or as a file's size.
  const ServerProcess server;
  RankProcesses ranks(2, [&](int rank) {
    for (const auto& entry : names_in("/proc/self/fd")) static_cast<void>(entry);
    UnixStore store(server.path());
    const auto comm = make_shm_communicator(store, rank, 2);
    const auto memory = comm->allocate(5 << 20);
    std::ifstream maps("/proc/self/maps");
    std::stringstream text;
    text << maps.rdbuf();
    if (text.str().find("/dev/shm/") != std::string::npos) return "a name in /dev/shm";
    if (text.str().find("/memfd:dtrain-gradients (deleted)") == std::string::npos) {
      return "no memory file";
    }
    barrier(*comm);
    return "done";
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.finish(r).text, "done");
}

TEST(Processes, ADeadServerIsAnErrorAtOnceForWhoeverWaits) {
  ServerProcess server;
  RankProcesses ranks(2, [&](int rank) {
    UnixStore store(server.path());
    store.set("waiting/" + std::to_string(rank), "");
    return store.get("never", Deadline(100));
  });
  wait_for_key(server.path(), "waiting/0");
  wait_for_key(server.path(), "waiting/1");
  const TimePoint start = Clock::now();
  server.kill();
  for (int r = 0; r < 2; ++r) {
    const std::string text = ranks.finish(r).text;
    EXPECT_NE(text.find("is gone (while waiting for 'never')"), std::string::npos) << text;
  }
  EXPECT_LT(seconds_since(start), 10);
  fs::remove_all(fs::path(server.path()).parent_path());
}

}  // namespace
}  // namespace dtrain
