#include "dtrain/launcher/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

std::vector<std::string> split(const std::vector<std::string>& pieces) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  auto take = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& piece : pieces) splitter.add(piece, take);
  splitter.finish(take);
  return lines;
}

TEST(LineSplitter, JoinsAndCuts) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(split({}), Lines{});
  EXPECT_EQ(split({"a\nb\n"}), (Lines{"a", "b"}));
  EXPECT_EQ(split({"a", "b\nc", "\n", "\n"}), (Lines{"ab", "c", ""}));
  EXPECT_EQ(split({"a\nlast"}), (Lines{"a", "last"}));
}

TEST(LineSplitter, CutsEndlessLines) {
  const std::size_t longest = LineSplitter::longest;
  const auto lines = split({std::string(longest - 1, 'x'), std::string(longest + 2, 'y'), "z\n"});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], std::string(longest - 1, 'x') + "y");
  EXPECT_EQ(lines[1], std::string(longest, 'y'));
  EXPECT_EQ(lines[2], "yz");
  const auto exact = split({std::string(longest, 'x') + "\nnext\n"});
  EXPECT_EQ(exact, (std::vector<std::string>{std::string(longest, 'x'), "next"}));
}

TEST(VisibleText, IsWhatATerminalWouldShow) {
  EXPECT_EQ(visible_text("plain"), "plain");
  EXPECT_EQ(visible_text("plain\r"), "plain");
  EXPECT_EQ(visible_text("\rstep 1\rstep 2"), "step 2");
  EXPECT_EQ(visible_text("\rstep 1\r\x1b[K"), "");
  EXPECT_EQ(visible_text("\x1b[1;31mred\x1b[0m text"), "red text");
}

struct Console2Files {
  TemporaryDirectory folder;
  UniqueFd out{::open((folder.path() / "out").c_str(), O_CREAT | O_RDWR, 0600)};
  UniqueFd err{::open((folder.path() / "err").c_str(), O_CREAT | O_RDWR, 0600)};
  Console console{out.get(), err.get()};
  std::string text(const char* name) {
    console.flush();
    return read_file(folder.path() / name);
  }
};

void print(int fd, std::string_view text) {
  ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(RankOutput, PrefixesLogsAndRemembersLines) {
  Console2Files files;
  const auto log = files.folder.path() / "rank-3.log";
  RankOutput output("[r3] ", log, false, &files.console);
  output.open(false);
  print(output.rank_output(), "one\ntw");
  output.read(ConsoleStream::output);
  print(output.rank_error(), "careful\n");
  output.read(ConsoleStream::error);
  print(output.rank_output(), "o\nunfinished");
  output.close_rank_side();
  output.finish();
  EXPECT_EQ(files.text("out"), "[r3] one\n[r3] two\n[r3] unfinished\n");
  EXPECT_EQ(files.text("err"), "[r3] careful\n");
  EXPECT_EQ(read_file(log), "one\ncareful\ntwo\nunfinished\n");
  EXPECT_EQ(output.last_lines(), (std::deque<std::string>{"one", "careful", "two", "unfinished"}));
  EXPECT_EQ(output.fd(ConsoleStream::output), -1);
}

TEST(RankOutput, RemembersTheLastTwentyLines) {
  RankOutput output("", "", false, nullptr);
  output.open(false);
  for (int i = 0; i < 50; ++i) print(output.rank_output(), std::to_string(i) + "\n");
  output.close_rank_side();
  output.finish();
  ASSERT_EQ(output.last_lines().size(), 20u);
  EXPECT_EQ(output.last_lines().front(), "30");
  EXPECT_EQ(output.last_lines().back(), "49");
}

TEST(RankOutput, EndsThoughADescendantHoldsThePipe) {
  RankOutput output("", "", false, nullptr);
  output.open(false);
  const UniqueFd held(::dup(output.rank_output()));
  print(held.get(), "last words\n");
  output.close_rank_side();
  output.finish();
  EXPECT_EQ(output.last_lines().back(), "last words");
}

TEST(RankOutput, AppendsToTheLogOfAnEarlierAttempt) {
  const TemporaryDirectory folder;
  const auto log = folder.path() / "rank-0.log";
  for (const bool append : {false, true, true, false, true}) {
    RankOutput output("", log, append, nullptr);
    output.open(false);
    print(output.rank_output(), "attempt\n");
    output.close_rank_side();
    output.finish();
  }
  EXPECT_EQ(read_file(log), "attempt\nattempt\n");
}

TEST(RankOutput, NamesALogThatCannotBeMade) {
  EXPECT_THROW(RankOutput("", "/no/such/folder/rank-0.log", false, nullptr), std::system_error);
}

TEST(RankOutput, GivesUpALogThatCannotBeWritten) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  RankOutput output("", "/dev/full", true, nullptr);
  output.open(false);
  print(output.rank_output(), "text\n");
  output.close_rank_side();
  output.finish();
  EXPECT_NE(output.log_error().find("/dev/full"), std::string::npos);
  EXPECT_EQ(output.last_lines().size(), 1u);
}

}  // namespace
}  // namespace dtrain
