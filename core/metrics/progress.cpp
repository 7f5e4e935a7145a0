#include "dtrain/core/metrics/progress.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <stdlib.h>

#include "dtrain/core/base/clock.h"

namespace dtrain {

namespace {

constexpr double seconds_between_draws = 0.1;
constexpr std::string_view clear_line = "\r\x1b[K";

bool is_drawable(int fd) {
  if (::isatty(fd) == 0) return false;
  const char* terminal = ::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) != "dumb";
}

int columns_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// A terminal that went away is no reason to stop training.
void write_quietly(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// "1,234,567"
std::string with_commas(double value) {
  if (!std::isfinite(value) || std::abs(value) >= 1e18) return fmt::format("{}", value);
  std::string digits = fmt::format("{:.0f}", value);
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string step_text(const ProgressLine& line) {
  if (line.steps <= 0) return fmt::format("step {:>6}", line.step);
  const std::string steps = fmt::format("{}", line.steps);
  return fmt::format("step {:>{}}/{}", line.step, std::max<std::size_t>(5, steps.size()), steps);
}

}  // namespace

std::string format_duration(double seconds) {
  constexpr double longest = 1e9;
  if (!(seconds >= 0 && seconds < longest)) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t minutes = whole / 60, hours = whole / 3600, days = whole / 86400;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours % 24, minutes % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes % 60, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string format_progress_line(const ProgressLine& line) {
  return fmt::format(
      "{} | epoch {} | loss {:.6f} | norm {:.4f} | lr {:.2e} | {} samples/s | data {:.1f} ms | "
      "{:.1f} ms",
      step_text(line), line.epoch, line.loss, line.grad_norm, line.lr,
      with_commas(line.samples_per_s), line.data_wait_ms, line.step_ms);
}

std::string format_progress_bar(const ProgressLine& line, int columns) {
  const auto limit = static_cast<std::size_t>(std::max(columns, 0));
  std::string text = step_text(line);
  if (line.steps > 0) {
    const double share =
        std::clamp(static_cast<double>(line.step) / static_cast<double>(line.steps), 0.0, 1.0);
    text = fmt::format("{:3.0f}% {}", std::floor(100 * share), text);
    // The bar gets a fifth of the line, and gives way to the facts on a narrow one.
    const std::size_t cells = std::min<std::size_t>(limit / 5, 30);
    if (cells >= 8) {
      const auto done = static_cast<std::size_t>(share * static_cast<double>(cells));
      std::string bar(done, '=');
      if (done < cells) bar += '>';
      bar.resize(cells, ' ');
      text = fmt::format("[{}] {}", bar, text);
    }
  }
  std::string facts[] = {
      fmt::format("loss {:.4f}", line.loss),
      fmt::format("{} samples/s", with_commas(line.samples_per_s)),
      "ETA " + format_duration(line.seconds_left),
      fmt::format("data {:.1f} ms", line.data_wait_ms),
      fmt::format("epoch {}", line.epoch),
      fmt::format("lr {:.2e}", line.lr),
      fmt::format("norm {:.3f}", line.grad_norm),
  };
  for (const std::string& fact : facts) {
    if (text.size() + 3 + fact.size() > limit) break;
    text += " | " + fact;
  }
  text.resize(std::min(text.size(), limit));
  return text;
}

struct Progress::Impl {
  std::int64_t every_steps;
  int fd;
  bool terminal;
  bool drawn = false;  // the cursor stands behind a bar
  TimePoint last_draw = TimePoint::min();
};

Progress::Progress(std::int64_t every_steps) : Progress(every_steps, STDERR_FILENO) {}

Progress::Progress(std::int64_t every_steps, int fd)
    : impl_(std::make_unique<Impl>(
          Impl{std::max<std::int64_t>(every_steps, 1), fd, is_drawable(fd)})) {}

Progress::~Progress() {
  if (impl_->drawn) write_quietly(impl_->fd, "\n");
}

bool Progress::due(std::int64_t step, std::int64_t steps) const {
  if (step == 1 || step == steps) return true;
  if (!impl_->terminal) return step % impl_->every_steps == 0;
  return impl_->last_draw == TimePoint::min() ||
         seconds_since(impl_->last_draw) >= seconds_between_draws;
}

void Progress::step(const ProgressLine& line) {
  if (!due(line.step, line.steps)) return;
  if (!impl_->terminal) {
    write_quietly(impl_->fd, format_progress_line(line) + "\n");
    return;
  }
  // The last column stays free: some terminals wrap as soon as it is written.
  const std::string bar = format_progress_bar(line, columns_of(impl_->fd) - 1);
  write_quietly(impl_->fd, std::string(clear_line) + bar);
  impl_->drawn = true;
  impl_->last_draw = Clock::now();
}

void Progress::pause() {
  if (!std::exchange(impl_->drawn, false)) return;
  write_quietly(impl_->fd, clear_line);
}

}  // namespace dtrain
