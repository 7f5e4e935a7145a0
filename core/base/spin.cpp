#include "dtrain/core/base/spin.h"

namespace dtrain {

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace dtrain
