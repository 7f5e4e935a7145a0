// The learning rate as a function of the optimizer steps done, and of nothing else: neither the
// number of processes nor that of micro-batches moves it.
//
// Values are PyTorch's of the scheduler of the same name. With warm-up the rate first rises
// linearly from warmup_start * lr to lr over warmup_steps; the schedule then starts at its step 0
// and has the remaining steps, as with torch.optim.lr_scheduler.SequentialLR. So step_size and
// milestones count from the end of warm-up.
//
//   Schedule schedule(config.schedule(), config.optimizer().lr(), total_steps);
//   scalars.lr = schedule.rate(step);   // step: updates applied so far, 0 at first
#pragma once

#include <cstdint>

#include "dtrain/core/config/train.pb.h"

namespace dtrain {

class Schedule {
 public:
  // total_steps: optimizer steps of the whole run. Throws ConfigError for a missing or unknown
  // value.
  Schedule(const config::Schedule& options, double lr, std::int64_t total_steps);

  // From total_steps on, the last rate.
  double rate(std::int64_t step) const;

 private:
  double after_warmup(std::int64_t step) const;
  double one_cycle(std::int64_t step) const;

  config::Schedule options_;
  double lr_;
  std::int64_t warmup_;
  std::int64_t steps_;  // after warm-up
};

}  // namespace dtrain
