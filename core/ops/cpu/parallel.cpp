#include "dtrain/core/ops/cpu/parallel.h"

#include <algorithm>
#include <exception>

#include <omp.h>

namespace dtrain::ops {

void parallel_ranges(const OpContext& context, std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const std::int64_t grains = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>(context.threads(), grains));
  if (threads <= 1) {
    body(0, count);
    return;
  }
  // OpenMP, whose team oneDNN keeps warm for this thread already.
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    // The team may be smaller than asked for; the cut follows what it is.
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t index = omp_get_thread_num();
    const std::int64_t first = grains * index / team * grain;
    const std::int64_t last = std::min(count, grains * (index + 1) / team * grain);
    try {
      if (first < last) body(first, last);
    } catch (...) {
#pragma omp critical(dtrain_parallel_ranges)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace dtrain::ops
