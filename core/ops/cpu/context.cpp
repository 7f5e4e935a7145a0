#include "dtrain/core/ops/context.h"

#include <omp.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/cpu/library.h"

namespace dtrain {

Convolution convolution_named(const std::string& name) {
  if (name == "auto") return Convolution::automatic;
  if (name == "direct") return Convolution::direct;
  if (name == "winograd") return Convolution::winograd;
  throw ConfigError(fmt::format("convolution: '{}' is not one of auto, direct, winograd", name));
}

OpContext::OpContext(Allocator& allocator, int threads, Convolution convolution)
    : allocator_(allocator), threads_(threads), convolution_(convolution) {
  DTRAIN_CHECK(threads >= 1, "{} threads", threads);
  library_ = std::make_unique<Library>(convolution);
}

OpContext::~OpContext() = default;

void OpContext::bind_to_this_thread() const {
  omp_set_dynamic(0);
  omp_set_num_threads(threads_);
}

}  // namespace dtrain
