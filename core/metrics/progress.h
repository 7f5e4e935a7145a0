// What a person sees: a progress bar on a terminal, plain lines to a pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dtrain {

struct ProgressLine {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::int64_t epoch = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double samples_per_s = 0;
  double step_ms = 0;
  double data_wait_ms = 0;
  double seconds_left = 0;
};

class Progress {
 public:
  // Draws a bar if standard error is a terminal; else prints a line every `every_steps` steps, for
  // the first and for the last.
  explicit Progress(std::int64_t every_steps);
  ~Progress();
  void step(const ProgressLine& line);
  // Clears the bar so that other output can stand on its line.
  void pause();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
