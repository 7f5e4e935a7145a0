#include "dtrain/launcher/rank_output.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>

#include <pty.h>
#include <termios.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr std::size_t longest_kept_line = 2000;

void set_flags(int fd, bool non_blocking) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (non_blocking) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

void LineSplitter::add(std::string_view bytes, const LineFunction& line) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t room = longest - rest_.size();
    const std::size_t size =
        std::min(newline == std::string_view::npos ? bytes.size() : newline, room);
    const bool ends = newline == size;
    if (!ends && size < room) {  // unfinished, and not too long yet
      rest_ += bytes;
      return;
    }
    if (rest_.empty()) {
      line(bytes.substr(0, size));
    } else {
      rest_ += bytes.substr(0, size);
      line(rest_);
      rest_.clear();
    }
    bytes.remove_prefix(size + (ends ? 1 : 0));
  }
}

void LineSplitter::finish(const LineFunction& line) {
  if (!rest_.empty()) line(rest_);
  rest_.clear();
}

std::string visible_text(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t overwritten = line.find_last_of('\r');
  if (overwritten != std::string_view::npos) line.remove_prefix(overwritten + 1);
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      text += line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '[') {
      // Control sequence: parameters, then one byte of '@' to '~'.
      for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~'); ++i) {
      }
    }
  }
  return text;
}

RankOutput::RankOutput(std::string prefix, std::filesystem::path log, bool append_to_log,
                       Console* console)
    : prefix_(std::move(prefix)), log_path_(std::move(log)), console_(console), sources_(2) {
  if (log_path_.empty()) return;
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (append_to_log ? O_APPEND : O_TRUNC);
  log_.reset(::open(log_path_.c_str(), flags, 0666));
  if (!log_) {
    throw std::system_error(errno, std::generic_category(),
                            log_path_.string() + ": cannot create the log of a rank");
  }
}

void RankOutput::open(bool terminal) {
  rank_side_.clear();
  for (std::size_t i = 0; i < 2; ++i) {
    int read_end = -1, write_end = -1;
    winsize size{};
    if (terminal && i == 1) {
      ::ioctl(console_->fd(ConsoleStream::error), TIOCGWINSZ, &size);
      terminal = ::openpty(&read_end, &write_end, nullptr, nullptr, &size) == 0;
    }
    if (terminal && i == 1) {
      // Bytes come out as they went in: the console's terminal turns newlines into what it needs.
      termios settings;
      if (::tcgetattr(write_end, &settings) == 0) {
        ::cfmakeraw(&settings);
        ::tcsetattr(write_end, TCSANOW, &settings);
      }
      sources_[i].terminal = true;
    } else {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) {
        throw std::system_error(errno, std::generic_category(), "cannot make a pipe for a rank");
      }
      read_end = ends[0];
      write_end = ends[1];
    }
    set_flags(read_end, true);
    set_flags(write_end, false);
    sources_[i].fd.reset(read_end);
    rank_side_.emplace_back(write_end);
  }
}

void RankOutput::close_rank_side() {
  for (UniqueFd& fd : rank_side_) fd.reset();
}

void RankOutput::read(ConsoleStream stream) {
  read_once(stream);
}

bool RankOutput::read_once(ConsoleStream stream) {
  Source& source = sources_[static_cast<std::size_t>(stream)];
  std::array<char, 64 << 10> buffer;
  const ssize_t n = ::read(source.fd.get(), buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n <= 0) {  // a pseudo-terminal ends with EIO
    end(stream);
    return false;
  }
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
  if (source.terminal && console_ != nullptr) console_->draw(bytes);
  std::string for_console;
  source.splitter.add(bytes, [&](std::string_view line) { take_line(source, line, for_console); });
  if (!for_console.empty()) console_->write_lines(stream, for_console);
  write_log();
  return true;
}

void RankOutput::end(ConsoleStream stream) {
  Source& source = sources_[static_cast<std::size_t>(stream)];
  if (!source.fd) return;
  source.fd.reset();
  if (source.terminal && console_ != nullptr) console_->finish_drawing();
  std::string for_console;
  source.splitter.finish([&](std::string_view line) { take_line(source, line, for_console); });
  if (!for_console.empty()) console_->write_lines(stream, for_console);
  write_log();
}

void RankOutput::finish() {
  // Bounded, because a descendant may go on writing; more than any pipe holds.
  constexpr int most_reads = 64;
  for (ConsoleStream stream : {ConsoleStream::output, ConsoleStream::error}) {
    for (int i = 0; i < most_reads && fd(stream) >= 0 && read_once(stream); ++i) {
    }
    end(stream);
  }
  log_.reset();
}

void RankOutput::take_line(Source& source, std::string_view line, std::string& for_console) {
  std::string visible;
  if (source.terminal) {
    visible = visible_text(line);
    line = visible;
    if (line.empty()) return;  // a bar that was cleared
  } else if (console_ != nullptr) {
    for_console += prefix_;
    for_console += line;
    for_console += '\n';
  }
  for_log_ += line;
  for_log_ += '\n';
  if (last_lines_.size() == kept_lines) last_lines_.pop_front();
  last_lines_.emplace_back(line.substr(0, longest_kept_line));
}

void RankOutput::write_log() {
  if (log_) {
    try {
      write_all(log_.get(), std::as_bytes(std::span(for_log_)), log_path_);
    } catch (const std::system_error& error) {
      // Training does not end because its log cannot be written; the report says so.
      log_error_ = error.what();
      log_.reset();
    }
  }
  for_log_.clear();
}

}  // namespace dtrain
