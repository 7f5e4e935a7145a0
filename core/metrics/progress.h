// What a person sees: a progress bar on a terminal, plain lines to a pipe.
//
//   Progress progress(10);
//   if (progress.due(step, steps)) progress.step(line);   // due() first: a loss may be far away
//
// Not for several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dtrain {

struct ProgressLine {
  std::int64_t step = 0;   // 1 is the first
  std::int64_t steps = 0;  // of the whole run; 0 if unknown
  std::int64_t epoch = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double samples_per_s = 0;
  double step_ms = 0;
  double data_wait_ms = 0;
  double seconds_left = 0;  // negative if unknown
};

class Progress {
 public:
  // Draws a bar if standard error is a terminal; else prints a line every `every_steps` steps, for
  // the first and for the last.
  explicit Progress(std::int64_t every_steps);
  // The same on another descriptor, which stays the caller's.
  Progress(std::int64_t every_steps, int fd);
  ~Progress();
  // Whether step() would show anything now: a terminal is drawn at most ten times a second.
  bool due(std::int64_t step, std::int64_t steps) const;
  // Shows the line if it is due.
  void step(const ProgressLine& line);
  // Clears the bar so that other output can stand on its line.
  void pause();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "step   120/235 | epoch 1 | loss 0.123456 | norm 1.2345 | lr 5.00e-02 | 12,345 samples/s |
// data 0.1 ms | 12.3 ms"
std::string format_progress_line(const ProgressLine& line);

// The same facts, most important first, behind a bar, in at most `columns` columns: "[=====>    ]".
std::string format_progress_bar(const ProgressLine& line, int columns);

// "0:07", "12:34", "3:04:05", "2d 03:04"; "?" if not known.
std::string format_duration(double seconds);

}  // namespace dtrain
