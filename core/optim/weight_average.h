// The exponential moving average of weights and running statistics (EMA), which often validates
// better than the weights themselves.
#pragma once

#include <span>

#include "dtrain/core/base/thread_pool.h"

namespace dtrain {

// average += (1 - decay) * (values - average), element by element, as
// torch.optim.swa_utils.get_ema_multi_avg_fn does; the bits do not depend on the threads.
void update_average(std::span<float> average, std::span<const float> values, double decay,
                    ThreadPool& pool);

}  // namespace dtrain
