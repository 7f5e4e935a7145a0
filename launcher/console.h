// Standard output and standard error of the launcher, for the lines of many ranks.
//
// Lines go out whole and in order, a rank's line never inside another's. Nothing here waits for a
// reader: text is kept until the descriptor takes it, so that a paused pager cannot keep the
// launcher from noticing that a rank died. A stream that takes no more ends: its reader went away,
// or its disk is full.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace dtrain {

enum class ConsoleStream { output, error };

class Console {
 public:
  // Descriptors that outlive it; tests give their own.
  explicit Console(int output_fd = 1, int error_fd = 2);

  // `lines` ends with a newline.
  void write_lines(ConsoleStream stream, std::string_view lines);
  // Bytes for the terminal that standard error is, which may draw and redraw an unfinished line: a
  // progress bar. Lines of others are put above it.
  void draw(std::string_view bytes);
  // Moves on to a new line if an unfinished one is on show.
  void finish_drawing();

  int fd(ConsoleStream stream) const { return at(stream).fd; }
  bool is_terminal(ConsoleStream stream) const { return at(stream).terminal; }
  bool pending(ConsoleStream stream) const { return !at(stream).text.empty(); }
  // So much is pending that ranks should wait before they write more.
  bool full(ConsoleStream stream) const;
  // The errno of text that was lost; 0 if none was, or if its reader had gone away.
  int lost_with(ConsoleStream stream) const { return at(stream).error; }
  // Writes some of what is pending; called when poll says that the descriptor takes it.
  void write_some(ConsoleStream stream);
  // Writes all that is pending, and waits for the reader.
  void flush();

 private:
  struct Sink {
    int fd;
    bool terminal;
    bool closed = false;
    int error = 0;            // that closed it, if it was not its reader
    std::size_t written = 0;  // of text
    std::string text;
  };
  Sink& at(ConsoleStream stream) { return sinks_[static_cast<std::size_t>(stream)]; }
  const Sink& at(ConsoleStream stream) const { return sinks_[static_cast<std::size_t>(stream)]; }
  bool write_once(Sink& sink, std::size_t most);
  static void append(Sink& sink, std::string_view text);

  std::array<Sink, 2> sinks_;
  std::string drawn_;  // the unfinished line that the terminal shows
};

}  // namespace dtrain
