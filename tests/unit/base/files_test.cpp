#include "dtrain/core/base/files.h"

#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  // errno and message of the system_error that `body` throws.
  template <typename Body>
  static std::pair<int, std::string> error_of(Body body) {
    try {
      body();
    } catch (const std::system_error& error) {
      return {error.code().value(), error.what()};
    }
    return {0, ""};
  }

  TemporaryDirectory folder_;
  fs::path path_ = folder_.path() / "file";
};

TEST(UniqueFd, ClosesOnce) {
  const int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    UniqueFd first(raw);
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), raw);
    UniqueFd third;
    third = std::move(second);
    third = std::move(third);
    EXPECT_EQ(third.get(), raw);
    EXPECT_EQ(::fcntl(raw, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(UniqueFd, ReleaseKeepsItOpen) {
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int raw = fd.release();
  fd.reset();
  EXPECT_NE(::fcntl(raw, F_GETFD), -1);
  ::close(raw);
}

TEST_F(FilesTest, ReadsWhatWasWritten) {
  const std::string content("a\0b\n", 4);
  write_file_atomically(path_, content);
  EXPECT_EQ(read_file(path_), content);
  write_file_atomically(path_, "");
  EXPECT_EQ(read_file(path_), "");
  EXPECT_FALSE(fs::exists(path_.string() + ".tmp"));
}

TEST_F(FilesTest, LimitOfRead) {
  write_file_atomically(path_, "12345");
  EXPECT_EQ(read_file(path_, 5), "12345");
  const auto [code, text] = error_of([&] { read_file(path_, 4); });
  EXPECT_EQ(code, EFBIG);
  EXPECT_NE(text.find(path_.string()), std::string::npos) << text;
}

TEST_F(FilesTest, NotAFile) {
  EXPECT_EQ(error_of([&] { read_file(path_); }).first, ENOENT);
  EXPECT_EQ(error_of([&] { read_file(folder_.path()); }).first, EISDIR);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_file(path_); }).first, EINVAL);  // and does not wait for a writer
}

TEST_F(FilesTest, FailedReplacementLeavesTheOldAndNoTemporary) {
  fs::create_directory(path_);
  EXPECT_NE(error_of([&] { write_file_atomically(path_, "x"); }).first, 0);
  EXPECT_TRUE(fs::is_directory(path_));
  EXPECT_FALSE(fs::exists(path_.string() + ".tmp"));
  EXPECT_EQ(error_of([&] { write_file_atomically(folder_.path() / "no" / "x", ""); }).first,
            ENOENT);
}

TEST_F(FilesTest, WriteAllNamesThePath) {
  const UniqueFd fd(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const std::byte byte{};
  const auto [code, text] = error_of([&] { write_all(fd.get(), {&byte, 1}, "some/path"); });
  EXPECT_EQ(code, ENOSPC);
  EXPECT_NE(text.find("some/path"), std::string::npos) << text;
}

TEST_F(FilesTest, SyncOfAMissingFolder) {
  fsync_directory(folder_.path());
  EXPECT_EQ(error_of([&] { fsync_directory(folder_.path() / "no"); }).first, ENOENT);
}

TEST(TemporaryDirectoryTest, IsPrivateAndRemoved) {
  fs::path path;
  {
    TemporaryDirectory folder("stem");
    path = folder.path();
    EXPECT_TRUE(path.filename().string().starts_with("stem-"));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    std::ofstream(path / "file") << "x";
    fs::create_directories(path / "a/b");
    TemporaryDirectory moved(std::move(folder));
    EXPECT_EQ(moved.path(), path);
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace dtrain
