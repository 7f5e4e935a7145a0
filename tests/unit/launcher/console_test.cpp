#include "dtrain/launcher/console.h"

#include <array>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <pty.h>

#include "dtrain/core/base/files.h"

namespace dtrain {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
  }
  std::string content() const {
    std::array<char, 1 << 16> buffer;
    const ssize_t n = ::read(read.get(), buffer.data(), buffer.size());
    return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : "";
  }
  UniqueFd read, write;
};

TEST(Console, KeepsLinesUntilTheyAreWritten) {
  Pipe out, err;
  Console console(out.write.get(), err.write.get());
  console.write_lines(ConsoleStream::output, "one\n");
  console.write_lines(ConsoleStream::output, "two\n");
  console.write_lines(ConsoleStream::error, "three\n");
  EXPECT_TRUE(console.pending(ConsoleStream::output));
  EXPECT_EQ(out.content(), "");
  console.write_some(ConsoleStream::output);
  EXPECT_EQ(out.content(), "one\ntwo\n");
  EXPECT_FALSE(console.pending(ConsoleStream::output));
  console.flush();
  EXPECT_EQ(err.content(), "three\n");
}

TEST(Console, NeverWritesMoreThanAPipeTakesAtOnce) {
  Pipe out;
  Console console(out.write.get(), out.write.get());
  console.write_lines(ConsoleStream::output, std::string(10000, 'x') + "\n");
  console.write_some(ConsoleStream::output);
  EXPECT_EQ(out.content().size(), 4096u);
  EXPECT_TRUE(console.pending(ConsoleStream::output));
}

TEST(Console, SaysWhenItIsFull) {
  Pipe out;
  Console console(out.write.get(), out.write.get());
  EXPECT_FALSE(console.full(ConsoleStream::output));
  console.write_lines(ConsoleStream::output, std::string((1 << 20) + 1, 'x'));
  EXPECT_TRUE(console.full(ConsoleStream::output));
  EXPECT_FALSE(console.full(ConsoleStream::error));
}

TEST(Console, DropsAStreamWhoseReaderIsGone) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe out, err;
  Console console(out.write.get(), err.write.get());
  out.read.reset();
  console.write_lines(ConsoleStream::output, "lost\n");
  console.write_some(ConsoleStream::output);
  console.write_lines(ConsoleStream::output, "lost\n");
  EXPECT_FALSE(console.pending(ConsoleStream::output));
  console.write_lines(ConsoleStream::error, "kept\n");
  console.flush();
  EXPECT_EQ(err.content(), "kept\n");
}

TEST(Console, PutsLinesAboveAProgressBar) {
  int main_end = -1, terminal = -1;
  ASSERT_EQ(::openpty(&main_end, &terminal, nullptr, nullptr, nullptr), 0);
  const UniqueFd own(main_end), shown(terminal);
  Console console(terminal, terminal);
  ASSERT_TRUE(console.is_terminal(ConsoleStream::error));
  console.draw("\rstep 1 [=>  ]");
  console.write_lines(ConsoleStream::output, "[r1] a warning\n");
  console.draw("\rstep 2 [==> ]");
  console.flush();
  std::array<char, 1024> buffer;
  const ssize_t n = ::read(main_end, buffer.data(), buffer.size());
  ASSERT_GT(n, 0);
  EXPECT_EQ(std::string(buffer.data(), static_cast<std::size_t>(n)),
            "\rstep 1 [=>  ]\r\x1b[K[r1] a warning\r\n\rstep 1 [=>  ]\rstep 2 [==> ]");
}

}  // namespace
}  // namespace dtrain
