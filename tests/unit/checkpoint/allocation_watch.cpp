#include "allocation_watch.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> largest{0};
}

void* operator new(std::size_t size) {
  std::size_t before = largest.load();
  while (size > before && !largest.compare_exchange_weak(before, size)) {
  }
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace dtrain {

std::size_t largest_allocation() {
  return largest.load();
}
void reset_largest_allocation() {
  largest.store(0);
}

}  // namespace dtrain
