// Which folders a run may use, and which files there are its own. Note [Whose file it is]
#include <fstream>
#include <unistd.h>

#include "support.h"

#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string refusal(const RunOptions& options = {}) const { return refusal_of(root_, options); }
  static std::string refusal_of(const fs::path& root, const RunOptions& options = {}) {
    return error_of<ConfigError>([&] { prepare_output({root}, options); });
  }
  void make_run() const {
    write(root_ / "config.yaml", "# a.yaml, resolved: every value, and so on\nseed: 0\n");
    write(root_ / "log.jsonl", "{\"event\":\"start\",\"step\":0}\n");
    write(root_ / "summary.json", "{\"status\": \"done\"}\n");
    write(root_ / "rank-0.log", "hello\n");
    CheckpointWriter writer(root_ / "checkpoints", {.run_id = "r"});
    CheckpointSnapshot snapshot;
    snapshot.state.set_step(3);
    snapshot.state.set_batch(3);
    snapshot.state.set_epoch(0);
    snapshot.state.set_batch_in_epoch(3);
    snapshot.state.set_samples_seen(3);
    snapshot.state.set_skipped(0);
    writer.save(std::move(snapshot));
    writer.wait();
  }

  TemporaryDirectory folder_;
  fs::path root_ = folder_.path() / "run";
  static constexpr RunOptions overwrite{.overwrite = true};
};

TEST_F(RunFolderTest, OverwriteRemovesTheRunAndNothingElse) {
  make_run();
  write(root_ / "notes.txt", "mine");
  write(root_ / "checkpoints" / "best.txt", "mine");
  write(root_ / "checkpoints" / "step-00000004.tmp" / "state.pb", "?");
  write(root_ / "checkpoints" / "step-00000002" / "MANIFEST", "damaged");
  EXPECT_TRUE(contains(refusal(), "holds a run at step 3"));
  EXPECT_EQ(refusal({.resume = true}), "");
  EXPECT_EQ(refusal(overwrite), "");
  for (const char* gone : {"log.jsonl", "summary.json", "rank-0.log", "checkpoints/step-00000002",
                           "checkpoints/step-00000003", "checkpoints/step-00000004.tmp"}) {
    EXPECT_FALSE(fs::exists(root_ / gone)) << gone;
  }
  for (const char* kept : {"notes.txt", "checkpoints/best.txt"}) {
    EXPECT_TRUE(fs::exists(root_ / kept)) << kept;
  }
}

TEST_F(RunFolderTest, FilesOfOthersAreLeftAlone) {
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"config.yaml", "model: mlp\n"},
           {"config.yaml", "\nmodel: mlp\n"},
           {"summary.json", "{\"quarter\": 3}"},
           {"log.jsonl", "{\"user\": 1}\n"},
           {"checkpoints/step-00000001/weights.pt", "x"}}) {
    for (const RunOptions& options : {RunOptions{}, RunOptions{.resume = true}, overwrite}) {
      write(root_ / name, text);
      const std::string error = refusal(options);
      EXPECT_TRUE(contains(error, root_.string())) << name << ": " << error;
      EXPECT_TRUE(contains(error, "choose another output folder")) << error;
      EXPECT_EQ(text_of(root_ / name), text);
    }
    fs::remove_all(root_);
  }
}

TEST_F(RunFolderTest, WhatIsInTheWayIsNamed) {
  for (const char* name : {"config.yaml", "log.jsonl", "summary.json", "rank-0.log"}) {
    fs::create_directories(root_ / name);
    EXPECT_EQ(refusal(), "output: " + (root_ / name).string() +
                             " is in the way: it is not a file: move it, or choose another output "
                             "folder");
    fs::remove(root_ / name);
  }
  write(root_ / "checkpoints", "");
  EXPECT_EQ(refusal(), "output: " + (root_ / "checkpoints").string() +
                           " is in the way: it is not a folder: move it, or choose another output "
                           "folder");
}

TEST_F(RunFolderTest, PathsThatCannotBeAFolder) {
  const fs::path file = folder_.path() / "file";
  write(file, "");
  EXPECT_EQ(refusal_of(file), "output: " + file.string() + " is not a folder; choose another one");
  EXPECT_EQ(refusal_of(file / "x" / "y"), "output: " + (file / "x" / "y").string() +
                                              " cannot be made: " + file.string() +
                                              " is not a folder; choose another one");
  const fs::path loop = folder_.path() / "loop";
  fs::create_symlink(loop, loop);
  EXPECT_EQ(refusal_of(loop),
            "output: " + loop.string() +
                " cannot be used: Too many levels of symbolic links (ELOOP); choose another output "
                "folder");
  const fs::path longest = folder_.path() / std::string(300, 'x');
  EXPECT_EQ(refusal_of(longest),
            "output: " + longest.string() +
                " cannot be used: File name too long (ENAMETOOLONG); choose another output folder");
  EXPECT_EQ(refusal_of(folder_.path() / "new" / "er"), "");
}

TEST_F(RunFolderTest, FoldersThatCannotBeWritten) {
  make_run();
  // Root may write anywhere: be someone else for a moment.
  const bool root = ::geteuid() == 0;
  fs::permissions(folder_.path(), fs::perms::all);
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  if (!root) fs::permissions(root_, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string resume = refusal({.resume = true});
  const std::string clear = refusal(overwrite);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  if (!root) fs::permissions(root_, fs::perms::owner_all);
  EXPECT_EQ(resume, "output: " + root_.string() +
                        " cannot be written: Permission denied (EACCES); change its permissions, "
                        "or choose another output folder");
  EXPECT_EQ(clear, resume);
  EXPECT_TRUE(fs::exists(root_ / "checkpoints" / "step-00000003" / "MANIFEST"));
}

TEST_F(RunFolderTest, KnowsWhatTheRunWrites) {
  write(root_ / "config.yaml", "seed: 1\n");
  for (const char* name : {"config.yaml", "log.jsonl", "./summary.json", "rank-12.log",
                           "checkpoints/step-00000003/model.safetensors"}) {
    EXPECT_TRUE(run_writes({root_}, root_ / name)) << name;
  }
  for (const char* name :
       {"a.yaml", "../config.yaml", "sub/log.jsonl", "rank-x.log", "checkpoints/points.csv"}) {
    EXPECT_FALSE(run_writes({root_}, root_ / name)) << name;
  }
  write(root_ / "config.yaml", "# a.yaml, resolved: every value\nseed: 1\n");
  EXPECT_FALSE(run_writes({root_}, root_ / "config.yaml"));
}

}  // namespace
}  // namespace dtrain::test
