// What an operator needs beside its tensors: where outputs are allocated, and how many threads
// compute. One context per lane, used by one thread at a time.
//
// Note [Threads of an operator]: arithmetic inside a virtual rank runs on exactly T threads, for
// oneDNN's weight gradients and small matrix products change bits with the team size. The team size
// is a property of the thread that calls (OpenMP does not inherit it), so every thread that makes
// or runs an operator calls bind_to_this_thread() first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtrain/core/device/allocator.h"

namespace dtrain {

// Algorithm of 3x3 convolutions; see Note [Layouts of convolutions].
enum class Convolution : std::uint8_t {
  automatic,  // a function of the shapes
  direct,
  winograd  // wherever there is such a kernel
};

// "auto", "direct", "winograd". Throws ConfigError for other names.
Convolution convolution_named(const std::string& name);

class OpContext {
 public:
  // threads: T of the recipe, >= 1. The allocator must outlive the context.
  OpContext(Allocator& allocator, int threads, Convolution convolution = Convolution::automatic);
  ~OpContext();
  OpContext(const OpContext&) = delete;
  OpContext& operator=(const OpContext&) = delete;

  Allocator& allocator() const { return allocator_; }
  int threads() const { return threads_; }
  Convolution convolution() const { return convolution_; }
  void bind_to_this_thread() const;

  // Engine, stream and the cache of primitives of the operators' library.
  struct Library;
  Library& library() const { return *library_; }

 private:
  Allocator& allocator_;
  int threads_;
  Convolution convolution_;
  std::unique_ptr<Library> library_;
};

}  // namespace dtrain
