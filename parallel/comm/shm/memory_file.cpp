#include "dtrain/parallel/comm/shm/memory_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/direct/available_memory.h"

namespace dtrain {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace

UniqueFd create_memory_file(const char* name, std::size_t bytes) {
  const auto fail = [&](const char* what) {
    const int error = errno;
    const AvailableMemory available = available_memory();
    return DeviceError(fmt::format(
        "cannot reserve shared memory: need {}, {} free (limit: {}): {}: {}; raise the limit, or "
        "use fewer processes, fewer virtual ranks or a smaller model",
        mebibytes(bytes), mebibytes(available.bytes), available.limit, what, errno_text(error)));
  };
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw fail("memfd_create");
  int result = 0;
  do {
    result = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(whole_pages(bytes)));
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw fail("fallocate");
  if (::fcntl(fd.get(), F_ADD_SEALS, size_seals) != 0) throw fail("sealing");
  return fd;
}

Segment map_memory_file(const UniqueFd& fd, std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  struct stat status {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) < size) {
    throw CommError(
        fmt::format("a peer offers memory that is not sealed, or has {} bytes where {} "
                    "were agreed",
                    status.st_size, size));
  }
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    throw DeviceError(
        fmt::format("cannot map {} of shared memory: {}", mebibytes(size), errno_text(errno)));
  }
  std::shared_ptr<void> owner(address, [size](void* p) { ::munmap(p, size); });
  // Page tables now rather than in the first step; kernels before 5.14 fill them when touched.
  ::madvise(address, size, MADV_POPULATE_WRITE);
  return {{static_cast<std::byte*>(address), bytes}, owner};
}

}  // namespace dtrain
