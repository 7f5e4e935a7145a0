#include "dtrain/core/ops/context.h"

#include <omp.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/cpu/library.h"

namespace dtrain {

OpContext::OpContext(Allocator& allocator, int threads) : allocator_(allocator), threads_(threads) {
  DTRAIN_CHECK(threads >= 1, "{} threads", threads);
  library_ = std::make_unique<Library>();
}

OpContext::~OpContext() = default;

void OpContext::bind_to_this_thread() const {
  omp_set_dynamic(0);
  omp_set_num_threads(threads_);
}

}  // namespace dtrain
