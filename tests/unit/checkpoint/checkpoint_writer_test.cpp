#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "checkpoint_testing.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class CheckpointWriterTest : public testing::Test {
 protected:
  static CheckpointOptions options(int keep_last = 3, int keep_best = 0) {
    return {.keep_last = keep_last, .keep_best = keep_best, .run_id = "run-1"};
  }

  TemporaryDirectory run_;
  fs::path folder_ = run_.path() / "checkpoints";
};

TEST_F(CheckpointWriterTest, WhatIsSavedComesBackBitForBit) {
  CheckpointSnapshot snapshot = make_snapshot(5, {0.1f, -0.0f, 1e-45f}, 0.125);
  snapshot.state.set_recipe("seed: 1\n");
  {
    CheckpointWriter writer(folder_, options());
    EXPECT_EQ(writer.last_saved_step(), -1);
    writer.save(snapshot);
    writer.wait();
    EXPECT_EQ(writer.last_saved_step(), 5);
  }
  const fs::path checkpoint = folder_ / "step-00000005";
  verify_checkpoint(checkpoint);
  EXPECT_EQ(names_in(checkpoint),
            (Names{"MANIFEST", "model.safetensors", "optimizer.safetensors", "state.pb"}));
  checkpoint::RunState expected = snapshot.state;
  expected.set_run_id("run-1");
  expected.set_validation_loss(0.125);
  EXPECT_EQ(read_run_state(checkpoint).SerializeAsString(), expected.SerializeAsString());
  for (const auto& [file, tensors] : {std::pair("model.safetensors", snapshot.model),
                                      std::pair("optimizer.safetensors", snapshot.optimizer)}) {
    std::vector<std::byte> bytes(12);
    const TensorTarget target{tensors[0].name, DType::f32, Shape{3}, bytes};
    EXPECT_EQ(load_tensors(checkpoint / file, {&target, 1}, true), 1);
    EXPECT_EQ(bytes, tensors[0].bytes);
  }
}

TEST_F(CheckpointWriterTest, SafetensorsDependOnTheTensorsAlone) {
  CheckpointWriter first(run_.path() / "a", options());
  CheckpointWriter second(run_.path() / "b", {.run_id = "another"});
  for (CheckpointWriter* writer : {&first, &second}) {
    writer->save(make_snapshot(5));
    writer->wait();
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(run_.path() / "a/step-00000005" / file),
              read_file(run_.path() / "b/step-00000005" / file));
  }
}

TEST_F(CheckpointWriterTest, DestructorFinishesWhatWasStarted) {
  {
    CheckpointWriter writer(folder_, options());
    writer.save(make_snapshot(1));
    writer.save(make_snapshot(2, std::vector<float>(1'000'000, 1)));
  }
  verify_checkpoint(folder_ / checkpoint_name(2));
}

TEST_F(CheckpointWriterTest, BuffersAreUsedAgain) {
  CheckpointWriter writer(folder_, options());
  std::vector<float> weights(100'000, 1);
  CheckpointSnapshot first = writer.take_snapshot();
  EXPECT_TRUE(first.model.empty());
  first = make_snapshot(1, weights, 0.5);
  const std::byte* buffer = first.model[0].bytes.data();
  writer.save(std::move(first));
  for (std::int64_t step = 2; step < 5; ++step) {
    CheckpointSnapshot next = writer.take_snapshot();
    ASSERT_EQ(next.model.size(), 1u);
    EXPECT_FALSE(next.state.has_step());
    EXPECT_FALSE(next.validation_loss.has_value());
    weights.assign(weights.size(), static_cast<float>(step));
    next.model[0].assign("fc.weight", DType::f32, Shape{100'000},
                         std::as_bytes(std::span(weights)));
    EXPECT_EQ(next.model[0].bytes.data(), buffer);
    next.state = make_snapshot(step).state;
    writer.save(std::move(next));
  }
  writer.wait();
  verify_checkpoint(folder_ / checkpoint_name(4));
}

TEST_F(CheckpointWriterTest, KeepsTheLastAndTheBest) {
  CheckpointWriter writer(folder_, options(2, 1));
  const double losses[] = {0.5, 0.25, 0.25, 0.75, 0.3, 0.9};
  for (int i = 0; i < 6; ++i) writer.save(make_snapshot(5 * (i + 1), {1}, losses[i]));
  writer.wait();
  EXPECT_EQ(names_in(folder_), (Names{"step-00000010", "step-00000025", "step-00000030"}));
}

TEST_F(CheckpointWriterTest, NonFiniteLossIsNoBest) {
  CheckpointWriter writer(folder_, options(1, 1));
  writer.save(make_snapshot(1, {1}, -std::numeric_limits<double>::infinity()));
  writer.save(make_snapshot(2, {1}, std::numeric_limits<double>::quiet_NaN()));
  writer.save(make_snapshot(3, {1}, 7.0));
  writer.save(make_snapshot(4, {1}));
  writer.wait();
  EXPECT_EQ(names_in(folder_), (Names{"step-00000003", "step-00000004"}));
}

TEST_F(CheckpointWriterTest, RetentionTouchesOnlyItsOwnRun) {
  {
    CheckpointWriter other(folder_, {.keep_last = 9, .run_id = "another"});
    other.save(make_snapshot(900));
    other.save(make_snapshot(1000));
    other.save(make_snapshot(3));
  }
  // Not readable: nobody knows whose it is.
  fs::create_directories(folder_ / "step-00000004");
  write_raw(folder_ / "step-00000004" / "MANIFEST", "?");
  write_raw(folder_ / "step-00000004" / "state.pb", "?");
  CheckpointWriter writer(folder_, options(1));
  writer.save(make_snapshot(10));
  writer.wait();
  EXPECT_EQ(names_in(folder_), (Names{"step-00000003", "step-00000004", "step-00000010",
                                      "step-00000900", "step-00001000"}));
  writer.save(make_snapshot(20));
  writer.wait();
  EXPECT_EQ(names_in(folder_), (Names{"step-00000003", "step-00000004", "step-00000020",
                                      "step-00000900", "step-00001000"}));
  // Nor is another run's replaced.
  writer.save(make_snapshot(900));
  EXPECT_EQ(checkpoint_error_of([&] { writer.wait(); }),
            (folder_ / "step-00000900").string() +
                ": belongs to another run (another, this one is run-1): choose another output, or "
                "--overwrite");
  EXPECT_EQ(read_run_state(folder_ / "step-00000900").run_id(), "another");
}

TEST_F(CheckpointWriterTest, WhatACrashLeftIsMadeGood) {
  {
    CheckpointWriter writer(folder_, options(9));
    for (int step : {1, 2, 3}) writer.save(make_snapshot(step));
  }
  fs::create_directories(folder_ / "step-00000004.tmp");
  write_raw(folder_ / "step-00000004.tmp" / "model.safetensors", "half");
  write_raw(folder_ / "notes.tmp", "somebody's");
  LogCapture log;
  CheckpointWriter writer(folder_, options(2));
  EXPECT_EQ(names_in(folder_),
            (Names{"notes.tmp", "step-00000001", "step-00000002", "step-00000003"}));
  EXPECT_EQ(log.text(), "info: " + (folder_ / "step-00000004.tmp").string() +
                            ": removed; a run ended while it was written\n");
  writer.save(make_snapshot(4));
  writer.wait();
  EXPECT_EQ(names_in(folder_), (Names{"notes.tmp", "step-00000003", "step-00000004"}));
}

TEST_F(CheckpointWriterTest, ARunThatWentBackReplacesItsOwn) {
  CheckpointWriter writer(folder_, options(9));
  writer.save(make_snapshot(1, {1}));
  writer.save(make_snapshot(2, {1}));
  writer.save(make_snapshot(1, {5}));
  writer.wait();
  EXPECT_EQ(names_in(folder_), (Names{"step-00000001", "step-00000002"}));
  verify_checkpoint(folder_ / "step-00000001");
  float value = 0;
  const TensorTarget target{"fc.weight", DType::f32, Shape{1},
                            std::as_writable_bytes(std::span(&value, 1))};
  load_tensors(folder_ / "step-00000001" / "model.safetensors", {&target, 1}, true);
  EXPECT_EQ(value, 5);
  // A damaged one is replaced too.
  write_raw(folder_ / "step-00000002" / "state.pb", "");
  LogCapture log;
  writer.save(make_snapshot(2, {6}));
  writer.wait();
  verify_checkpoint(folder_ / "step-00000002");
  EXPECT_NE(log.text().find("warning: a damaged checkpoint is replaced: "), std::string::npos);
}

// Of a run that starts over, with a new id.
TEST_F(CheckpointWriterTest, AnotherRunsDamagedCheckpointIsReplaced) {
  {
    CheckpointWriter other(folder_, {.run_id = "another"});
    other.save(make_snapshot(5));
  }
  write_raw(folder_ / checkpoint_name(5) / "model.safetensors", "?");
  EXPECT_EQ(newest_run_id(folder_), "another");
  CheckpointWriter writer(folder_, options());
  writer.save(make_snapshot(5));
  writer.wait();
  verify_checkpoint(folder_ / checkpoint_name(5));
  EXPECT_EQ(newest_run_id(folder_), "run-1");
  EXPECT_EQ(names_in(folder_), Names{"step-00000005"});
}

TEST_F(CheckpointWriterTest, GoingBackRemovesTheBranchThatWasGivenUp) {
  {
    CheckpointWriter other(folder_, {.run_id = "another"});
    other.save(make_snapshot(9));
  }
  {
    CheckpointWriter writer(folder_, options(9));
    for (const int step : {2, 4, 6, 8}) writer.save(make_snapshot(step));
  }
  write_raw(folder_ / checkpoint_name(6) / "model.safetensors", "?");
  LogCapture log;
  CheckpointOptions back = options(9);
  back.begin_step = 2;
  const CheckpointWriter writer(folder_, back);
  // Damaged ones and those of other runs are left.
  EXPECT_EQ(names_in(folder_), (Names{"step-00000002", "step-00000006", "step-00000009"}));
  EXPECT_EQ(log.text(), "warning: " + folder_.string() +
                            ": the run goes back to step 2: its checkpoints of later steps are "
                            "removed (4, 8)\n");
}

TEST_F(CheckpointWriterTest, AFolderThatIsRemovedIsToldWithItsPath) {
  CheckpointWriter writer(folder_, options());
  fs::remove_all(folder_);
  writer.save(make_snapshot(1));
  EXPECT_EQ(checkpoint_error_of([&] { writer.wait(); }),
            (folder_ / "step-00000001.tmp").string() +
                ": cannot write: No such file or directory (ENOENT); its folder is missing: leave "
                "it alone while the run goes");
}

TEST_F(CheckpointWriterTest, OneWriterPerFolder) {
  auto writer = std::make_unique<CheckpointWriter>(folder_, options());
  EXPECT_EQ(checkpoint_error_of([this] { CheckpointWriter(folder_, options()); }),
            folder_.string() + ": another process writes checkpoints here: choose another output");
  writer.reset();
  CheckpointWriter again(folder_, options());
}

TEST_F(CheckpointWriterTest, FolderThatCannotBe) {
  write_raw(run_.path() / "file", "");
  EXPECT_NE(checkpoint_error_of([this] { CheckpointWriter(run_.path() / "file/x", options()); }),
            "");
  EXPECT_THROW(CheckpointWriter(folder_, {.run_id = ""}), InternalError);
  EXPECT_THROW(CheckpointWriter(folder_, {.keep_last = 0, .run_id = "x"}), InternalError);
}

TEST_F(CheckpointWriterTest, ErrorComesOnceAndTheWriterGoesOn) {
  CheckpointWriter writer(folder_, options());
  CheckpointSnapshot bad = make_snapshot(1);
  bad.state.clear_batch();
  writer.save(std::move(bad));
  EXPECT_EQ(checkpoint_error_of([&] { writer.save(make_snapshot(2)); }),
            (folder_ / "step-00000001.tmp" / "state.pb").string() + ": field batch is missing");
  EXPECT_TRUE(names_in(folder_).empty());
  writer.save(make_snapshot(3));
  writer.wait();
  EXPECT_EQ(names_in(folder_), Names{"step-00000003"});
}

// A file system of 20 MB; absent where mounting is not allowed.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& path) : path_(path) {
    fs::create_directories(path);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=20m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  fs::path path_;
  bool mounted_;
};

// A checkpoint of 8 MB.
CheckpointSnapshot big_snapshot(std::int64_t step) {
  return make_snapshot(step, std::vector<float>(1'000'000, static_cast<float>(step)));
}

TEST_F(CheckpointWriterTest, FullDiskLeavesThePreviousIntact) {
  SmallDisk disk(folder_);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  for (bool warn_only : {false, true}) {
    fs::remove_all(folder_ / "step-00000001");
    fs::remove_all(folder_ / "step-00000002");
    LogCapture log;
    {
      CheckpointOptions two = options(2);
      two.warn_only = warn_only;
      CheckpointWriter writer(folder_, two);
      writer.save(big_snapshot(1));
      writer.save(big_snapshot(2));
      writer.save(big_snapshot(3));  // two of 8 MB stand, 4 MB are free
      const std::string error = checkpoint_error_of([&] { writer.wait(); });
      const std::string expected =
          (folder_ / "step-00000003.tmp" / "optimizer.safetensors").string() +
          ": cannot write: No space left on device (ENOSPC), after ";
      if (warn_only) {
        EXPECT_EQ(error, "");
        EXPECT_NE(log.text().find("warning: checkpoint not written, training goes on: " + expected),
                  std::string::npos)
            << log.text();
      } else {
        EXPECT_TRUE(error.starts_with(expected)) << error;
        EXPECT_TRUE(error.ends_with("; free space or inodes there, or lower checkpoint.keep_last"))
            << error;
      }
      EXPECT_EQ(writer.last_saved_step(), 2);
    }
    EXPECT_NE(log.text().find("3 checkpoints (keep_last, keep_best and the one being written) need "
                              "24.0 MB, "),
              std::string::npos)
        << log.text();
    EXPECT_EQ(names_in(folder_), (Names{"step-00000001", "step-00000002"}));
    EXPECT_EQ(find_newest_checkpoint(folder_), folder_ / "step-00000002");
  }
}

TEST_F(CheckpointWriterTest, FileSizeLimitIsAnErrorNotASignal) {
  // In a child: the limit holds for the whole process.
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string error;
    {
      CheckpointWriter writer(folder_, options());
      writer.save(make_snapshot(1));
      writer.wait();
      writer.save(big_snapshot(2));
      error = checkpoint_error_of([&] { writer.wait(); });
    }
    ::_exit(error == (folder_ / "step-00000002.tmp" / "model.safetensors").string() +
                         ": cannot write: File too large (EFBIG), after 1048576 of 4000088 "
                         "bytes; raise the limit on the size of files (ulimit -f)"
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(names_in(folder_), Names{"step-00000001"});
}

TEST_F(CheckpointWriterTest, SavesFromOneThreadWhileAnotherLooks) {
  LogCapture quiet;
  CheckpointWriter writer(folder_, options(2));
  std::jthread looker([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      const auto steps = list_checkpoints(folder_);
      const auto newest = find_newest_checkpoint(folder_);
      // Unless it was overtaken by several saves, which took the ones that it knew away.
      if (!steps.empty() && list_checkpoints(folder_) == steps) {
        EXPECT_EQ(newest, folder_ / checkpoint_name(steps.back()));
      }
    }
  });
  for (int step = 1; step <= 50; ++step) {
    CheckpointSnapshot snapshot = writer.take_snapshot();
    snapshot = make_snapshot(step);
    writer.save(std::move(snapshot));
  }
  writer.wait();
  looker.request_stop();
  looker.join();
  EXPECT_EQ(names_in(folder_), (Names{"step-00000049", "step-00000050"}));
}

}  // namespace
}  // namespace dtrain
