// A process that saves without end is killed at random moments: the newest checkpoint is whole and
// never older than the last one acknowledged.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "saver.h"
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

CheckpointOptions options() {
  return {.keep_last = 2, .keep_best = 0, .run_id = "killed"};
}

std::int64_t newest_step(const fs::path& folder) {
  const auto newest = find_newest_checkpoint(folder);
  return newest ? read_run_state(*newest).step() : 0;
}

// Resumes, saves every step, and writes each to `acknowledged` once it is saved. Never returns.
[[noreturn]] void save_for_ever(const fs::path& folder, int acknowledged) {
  try {
    std::int64_t step = newest_step(folder);
    CheckpointWriter writer(folder, options());
    while (true) {
      CheckpointSnapshot snapshot = writer.take_snapshot();
      fill_snapshot(snapshot, ++step);
      writer.save(std::move(snapshot));
      writer.wait();
      if (::write(acknowledged, &step, sizeof step) != sizeof step) ::_exit(3);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(2);
  }
}

// Steps that stand in the pipe, until its end.
std::int64_t last_of(int pipe) {
  std::int64_t last = 0;
  for (std::int64_t step = 0; ::read(pipe, &step, sizeof step) == sizeof step;) last = step;
  return last;
}

bool has_temporary(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tmp") return true;
  }
  return false;
}

TEST(CheckpointKill, FiftyKillsLoseNothing) {
  spdlog::set_level(spdlog::level::warn);
  TemporaryDirectory run("dtrain-kill");
  const fs::path folder = run.path() / "checkpoints";
  constexpr int rounds = 50;
  std::mt19937 random(12345);
  std::uniform_int_distribution<int> microseconds(0, 250'000);
  int half_written = 0;
  std::int64_t newest = 0;
  for (int round = 0; round < rounds; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    UniqueFd reader(ends[0]), writer(ends[1]);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder, writer.get());
    writer.reset();
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "round " << round << ": the writer ended by itself, status " << status;
    const std::int64_t acknowledged = std::max(newest, last_of(reader.get()));
    if (!fs::exists(folder)) continue;  // killed before it began
    half_written += has_temporary(folder) ? 1 : 0;

    // Whatever bears a final name is whole.
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".tmp") continue;
      ASSERT_NO_THROW(verify_checkpoint(entry.path())) << "round " << round;
    }
    newest = newest_step(folder);
    ASSERT_GE(newest, acknowledged) << "round " << round;
    if (newest > 0) {
      std::vector<float> values(saved_floats);
      const TensorTarget target{"w", DType::f32, Shape{saved_floats},
                                std::as_writable_bytes(std::span(values))};
      ASSERT_EQ(
          load_tensors(folder / checkpoint_name(newest) / "model.safetensors", {&target, 1}, true),
          1);
      ASSERT_EQ(values, std::vector<float>(saved_floats, static_cast<float>(newest)));
    }
    // The next start leaves nothing half-written.
    CheckpointWriter(folder, options());
    ASSERT_FALSE(has_temporary(folder)) << "round " << round;
    ASSERT_EQ(newest_step(folder), newest);
  }
  RecordProperty("half_written", half_written);
  RecordProperty("steps", static_cast<int>(newest));
  // Else the moments were not random enough to prove anything.
  EXPECT_GE(half_written, 5);
  EXPECT_GE(newest, 5);
  // Retention kept up through all of it.
  EXPECT_LE(list_checkpoints(folder).size(), 3u);
}

TEST(CheckpointOrder, FilesThenFolderThenNameThenParent) {
  TemporaryDirectory run("dtrain-order");
  const fs::path folder = run.path() / "checkpoints";
  const fs::path trace = run.path() / "trace";
  const std::string command =
      fmt::format("strace -f -y -e trace=fsync,rename,renameat2 -o '{}' '{}' '{}' 2>/dev/null",
                  trace.string(), SAVE_TWO_PROGRAM, folder.string());
  if (std::system("strace -o /dev/null true >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "strace is missing, or may not trace here";
  }
  ASSERT_EQ(std::system(command.c_str()), 0);
  // The calls in order, as "fsync NAME" and "rename FROM TO", relative to the folder.
  std::vector<std::string> calls;
  std::ifstream lines(trace);
  const std::string prefix = folder.string();
  for (std::string line; std::getline(lines, line);) {
    const bool is_sync = line.find("fsync(") != std::string::npos;
    if (!is_sync && line.find("rename") == std::string::npos) continue;
    std::string call = is_sync ? "fsync" : "rename";
    for (std::size_t at = line.find(prefix); at != line.npos; at = line.find(prefix, at + 1)) {
      const std::size_t begin = at + prefix.size();
      const std::size_t end = line.find_first_of(">\"", begin);
      call += ' ';
      call += begin == end ? "." : line.substr(begin + 1, end - begin - 1);
    }
    if (call.find(' ') != call.npos) calls.push_back(call);
  }
  const auto save = [](const std::string& name) {
    return std::vector<std::string>{"fsync " + name + ".tmp/model.safetensors",
                                    "fsync " + name + ".tmp/optimizer.safetensors",
                                    "fsync " + name + ".tmp/state.pb",
                                    "fsync " + name + ".tmp/MANIFEST",
                                    "fsync " + name + ".tmp",
                                    "rename " + name + ".tmp " + name,
                                    "fsync ."};
  };
  std::vector<std::string> expected = {"fsync ."};
  for (const char* name : {"step-00000001", "step-00000002"}) {
    const auto one = save(name);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  // Removal: the name goes first, and for good, before the content does.
  expected.push_back("rename step-00000001 step-00000001.tmp");
  expected.push_back("fsync .");
  EXPECT_EQ(calls, expected);
}

}  // namespace
}  // namespace dtrain
