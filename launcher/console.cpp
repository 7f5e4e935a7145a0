#include "dtrain/launcher/console.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace dtrain {

namespace {

constexpr std::size_t full_size = 1 << 20;
// What a pipe takes without waiting once poll says that it is writable (PIPE_BUF).
constexpr std::size_t write_size = 4096;
// An unfinished line that is longer is no progress bar; its start is not drawn again.
constexpr std::size_t longest_drawn = 4096;
constexpr std::string_view clear_line = "\r\x1b[K";

}  // namespace

Console::Console(int output_fd, int error_fd)
    : sinks_{Sink{output_fd, ::isatty(output_fd) != 0, false, 0, 0, {}},
             Sink{error_fd, ::isatty(error_fd) != 0, false, 0, 0, {}}} {}

void Console::append(Sink& sink, std::string_view text) {
  if (!sink.closed) sink.text += text;
}

void Console::write_lines(ConsoleStream stream, std::string_view lines) {
  Sink& sink = at(stream);
  if (drawn_.empty() || !sink.terminal) {
    append(sink, lines);
    return;
  }
  // Both streams share the terminal then. The bar goes through standard error, so lines that must
  // stand above it do too.
  Sink& terminal = at(ConsoleStream::error);
  append(terminal, clear_line);
  append(terminal, lines);
  append(terminal, drawn_);
}

void Console::draw(std::string_view bytes) {
  append(at(ConsoleStream::error), bytes);
  const std::size_t line = bytes.find_last_of('\n');
  if (line != std::string_view::npos) {
    drawn_.clear();
    bytes.remove_prefix(line + 1);
  }
  const std::size_t redraw = bytes.find_last_of('\r');
  if (redraw != std::string_view::npos) {
    drawn_.clear();
    bytes.remove_prefix(redraw);
  }
  drawn_ += bytes;
  if (drawn_.size() > longest_drawn) drawn_.erase(0, drawn_.size() - longest_drawn);
  if (drawn_ == clear_line) drawn_.clear();
}

void Console::finish_drawing() {
  if (!drawn_.empty()) append(at(ConsoleStream::error), "\n");
  drawn_.clear();
}

bool Console::full(ConsoleStream stream) const {
  const Sink& sink = at(stream);
  return sink.text.size() - sink.written > full_size;
}

bool Console::write_once(Sink& sink, std::size_t most) {
  const std::size_t size = std::min(most, sink.text.size() - sink.written);
  const ssize_t n = ::write(sink.fd, sink.text.data() + sink.written, size);
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n < 0) {
    // The job goes on, and rank logs have the text.
    sink.closed = true;
    sink.error = errno == EPIPE ? 0 : errno;
    sink.text.clear();
    sink.written = 0;
    return true;
  }
  sink.written += static_cast<std::size_t>(n);
  if (sink.written == sink.text.size()) {
    sink.text.clear();
    sink.written = 0;
  } else if (sink.written > full_size) {
    sink.text.erase(0, sink.written);
    sink.written = 0;
  }
  return true;
}

void Console::write_some(ConsoleStream stream) {
  if (pending(stream)) write_once(at(stream), write_size);
}

void Console::flush() {
  for (Sink& sink : sinks_) {
    while (!sink.text.empty()) {
      if (write_once(sink, write_size)) continue;
      pollfd ready{sink.fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    }
  }
}

}  // namespace dtrain
