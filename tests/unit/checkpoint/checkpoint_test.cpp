#include "dtrain/core/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include "checkpoint_testing.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  void save(std::initializer_list<std::int64_t> steps) {
    CheckpointWriter writer(folder_, {.keep_last = 100, .run_id = "run-1"});
    for (std::int64_t step : steps) writer.save(make_snapshot(step));
    writer.wait();
  }
  fs::path step(std::int64_t number) const { return folder_ / checkpoint_name(number); }

  // Flips one bit of a file.
  static void damage(const fs::path& path, std::size_t at) {
    std::string content = read_file(path);
    content.at(at) ^= 1;
    write_raw(path, content);
  }

  TemporaryDirectory run_;
  fs::path folder_ = run_.path() / "checkpoints";
};

TEST(CheckpointName, IsPaddedAndParsedExactly) {
  EXPECT_EQ(checkpoint_name(100), "step-00000100");
  EXPECT_EQ(checkpoint_name(1234567890), "step-1234567890");
  EXPECT_EQ(step_of_checkpoint_name("step-00000100"), 100);
  EXPECT_EQ(step_of_checkpoint_name("step-1234567890"), 1234567890);
  for (const char* name :
       {"step-100", "step-00000100.tmp", "step--0000001", "step-", "step", "step-0000010x",
        "step-001234567890", "checkpoint-00000100", "step-99999999999999999999"}) {
    EXPECT_EQ(step_of_checkpoint_name(name), std::nullopt) << name;
  }
}

TEST_F(CheckpointTest, ListIsInNumericOrderAndIgnoresOthers) {
  EXPECT_TRUE(list_checkpoints(folder_).empty());
  save({9, 10, 100});
  // Above eight digits the names no longer sort as text.
  fs::copy(step(9), folder_ / "step-1000000000");
  fs::copy(step(9), folder_ / "step-99999999");
  fs::create_directory(folder_ / "step-00000050");  // no MANIFEST
  fs::create_directory(folder_ / "step-00000060.tmp");
  fs::create_directory(folder_ / "notes");
  write_raw(folder_ / "step-00000070", "a file");
  EXPECT_EQ(list_checkpoints(folder_),
            (std::vector<std::int64_t>{9, 10, 100, 99999999, 1000000000}));
}

TEST_F(CheckpointTest, NewestIsTheHighestThatVerifies) {
  EXPECT_EQ(find_newest_checkpoint(folder_), std::nullopt);
  save({8, 9, 10});
  EXPECT_EQ(find_newest_checkpoint(folder_), step(10));
  damage(step(10) / "model.safetensors", fs::file_size(step(10) / "model.safetensors") - 1);
  fs::resize_file(step(9) / "optimizer.safetensors", 50);
  LogCapture log;
  EXPECT_EQ(find_newest_checkpoint(folder_), step(8));
  const std::string text = log.text();
  EXPECT_NE(text.find("warning: checkpoint of step 10 is passed over: " +
                      (step(10) / "model.safetensors").string() + ": damaged: digest "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("checkpoint of step 9 is passed over: " +
                      (step(9) / "optimizer.safetensors").string() +
                      ": damaged: 50 bytes, MANIFEST says "),
            std::string::npos)
      << text;
}

TEST_F(CheckpointTest, EveryFlippedByteOfEveryFileIsSeen) {
  save({1});
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.pb", "MANIFEST"}) {
    const fs::path path = step(1) / name;
    const std::string good = read_file(path);
    for (std::size_t i = 0; i < good.size(); i += 7) {
      damage(path, i);
      EXPECT_TRUE(checkpoint_error_of([&] {
                    verify_checkpoint(step(1));
                  }).starts_with(path.string() + ": "))
          << name << " " << i;
      write_raw(path, good);
    }
  }
  verify_checkpoint(step(1));
}

TEST_F(CheckpointTest, MissingOddAndForeignFiles) {
  save({1, 2});
  const auto error = [this] { return checkpoint_error_of([this] { verify_checkpoint(step(1)); }); };
  const fs::path state = step(1) / "state.pb";
  fs::rename(state, step(1) / "x");
  EXPECT_EQ(error(), state.string() + ": cannot open: No such file or directory (ENOENT)");
  ASSERT_EQ(::mkfifo(state.c_str(), 0600), 0);
  EXPECT_EQ(error(), state.string() + ": is a FIFO, not a file");
  fs::remove(state);
  fs::create_directory(state);
  EXPECT_EQ(error(), state.string() + ": is a folder, not a file");
  fs::remove(state);
  fs::rename(step(1) / "x", state);
  EXPECT_EQ(error(), "");

  // A copy under another step's name would resume at the wrong place.
  fs::copy(step(2), step(3));
  EXPECT_EQ(checkpoint_error_of([this] { verify_checkpoint(step(3)); }),
            (step(3) / "state.pb").string() +
                ": holds step 2: the folder was renamed, or copied over another");
  // Under a name of one's own it is as good as it was.
  fs::copy(step(2), run_.path() / "best");
  verify_checkpoint(run_.path() / "best");
}

TEST_F(CheckpointTest, OversizedStateIsNotRead) {
  save({1});
  fs::resize_file(step(1) / "state.pb", std::uintmax_t{1} << 40);  // sparse
  EXPECT_EQ(
      checkpoint_error_of([this] { read_run_state(step(1)); }),
      (step(1) / "state.pb").string() + ": too large: 1099511627776 bytes, the limit is 16777216");
}

TEST_F(CheckpointTest, ResolveTakesCheckpointRunOrFolder) {
  save({10, 20});
  EXPECT_EQ(resolve_checkpoint(step(10)), step(10));
  EXPECT_EQ(resolve_checkpoint(step(10).string() + "/"), step(10));
  EXPECT_EQ(resolve_checkpoint(folder_), step(20));
  EXPECT_EQ(resolve_checkpoint(run_.path()), step(20));
  EXPECT_EQ(resolve_weights(run_.path()), step(20) / "model.safetensors");
  EXPECT_EQ(resolve_weights("elsewhere.safetensors"), "elsewhere.safetensors");
}

TEST_F(CheckpointTest, ResolveSaysWhatIsWrong) {
  const auto error = [](const fs::path& path) {
    return checkpoint_error_of([&] { resolve_checkpoint(path); });
  };
  EXPECT_EQ(error(run_.path() / "none"),
            (run_.path() / "none").string() + ": no such checkpoint or run");
  EXPECT_EQ(error(run_.path()), run_.path().string() + ": there is no complete checkpoint in it");
  save({1});
  EXPECT_EQ(error(step(1) / "state.pb"),
            (step(1) / "state.pb").string() + ": is a file, but a checkpoint or a run is a folder");
  damage(step(1) / "state.pb", 0);
  EXPECT_TRUE(error(step(1)).starts_with((step(1) / "state.pb").string() + ": damaged: digest "));
  fs::remove(step(1) / "MANIFEST");
  EXPECT_EQ(error(step(1)), step(1).string() + ": incomplete checkpoint: it has no MANIFEST");
}

}  // namespace
}  // namespace dtrain
