#include "dtrain/launcher/folder_lock.h"

#include <fstream>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/launcher/output_folder.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

TEST(FolderLock, KeepsASecondRunOutUntilItIsGone) {
  const TemporaryDirectory folder;
  {
    const FolderLock lock(folder.path());
    try {
      FolderLock second(folder.path());
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(folder.path().string()), std::string::npos);
    }
  }
  EXPECT_NO_THROW(FolderLock(folder.path()));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(FolderLock, NeedsTheFolder) {
  const TemporaryDirectory folder;
  EXPECT_THROW(FolderLock(folder.path() / "none"), ConfigError);
}

TEST(OutputFolder, IsCreatedAndLocked) {
  const TemporaryDirectory folder;
  const RunFolder run{folder.path() / "a" / "b"};
  const OutputFolder output(run, {});
  EXPECT_TRUE(fs::is_directory(run.root));
  EXPECT_THROW(OutputFolder(run, {}), ConfigError);
}

TEST(OutputFolder, IsNotClearedWhileAnotherRunUsesIt) {
  const TemporaryDirectory folder;
  const RunFolder run{folder.path() / "run"};
  const OutputFolder output(run, {});
  std::ofstream(run.log()) << "{}\n";
  RunOptions options;
  options.overwrite = true;
  EXPECT_THROW(OutputFolder(run, options), ConfigError);
  EXPECT_TRUE(fs::exists(run.log()));
}

TEST(OutputFolder, ThatIsRefusedStaysAsItWas) {
  const TemporaryDirectory folder;
  const RunFolder run{folder.path()};
  std::ofstream(run.log()) << "{}\n";
  EXPECT_THROW(OutputFolder(run, {}), ConfigError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
  EXPECT_THROW(OutputFolder(RunFolder{run.log()}, {}), ConfigError);
  EXPECT_THROW(OutputFolder(RunFolder{run.log() / "below"}, {}), ConfigError);
}

}  // namespace
}  // namespace dtrain
