#include "dtrain/parallel/comm/direct/segments.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/direct/available_memory.h"

namespace dtrain {

Segment make_anonymous_segment(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw DeviceError(fmt::format("cannot reserve {}: {}", mebibytes(size), errno_text(errno)));
  }
  std::shared_ptr<void> owner(address, [size](void* p) { ::munmap(p, size); });
  ::madvise(address, size, MADV_HUGEPAGE);  // advice only
  // Kernels before 5.14 do not know it, and give the pages when they are touched.
  if (::madvise(address, size, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    throw DeviceError(fmt::format("cannot reserve {}: {}", mebibytes(size), errno_text(errno)));
  }
  return {{static_cast<std::byte*>(address), bytes}, owner};
}

}  // namespace dtrain
