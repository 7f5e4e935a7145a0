// Any bytes as a safetensors file: refused with a CheckpointError, or read whole.
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/core/checkpoint/safetensors.h"

namespace {

// What the reader promises of a header that it accepts.
void check_promises(const std::vector<dtrain::TensorEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const dtrain::TensorEntry& entry : entries) {
    if (entry.begin != covered || entry.end < entry.begin) std::abort();
    const auto elements = static_cast<std::uint64_t>(entry.shape.elements());
    if (elements * size_of(entry.dtype) != entry.end - entry.begin) std::abort();
    (void)entry.shape.elements_per_row();
    covered = entry.end;
  }
  if (covered != data_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // As a whole file, from memory.
  const dtrain::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  dtrain::write_all(fd.get(), std::as_bytes(std::span(text)), "memfd");
  try {
    const dtrain::SafetensorsFile file("/proc/self/fd/" + std::to_string(fd.get()));
    for (const dtrain::TensorEntry& entry : file.entries()) {
      if (file.find(entry.name) != &entry) std::abort();
      std::vector<std::byte> bytes(entry.end - entry.begin);
      file.read(entry, bytes);
    }
    check_promises(file.entries(), file.entries().empty() ? 0 : file.entries().back().end);
  } catch (const dtrain::CheckpointError&) {
  }
  // As a header alone, so that the length before it need not be guessed.
  for (const std::uint64_t data_bytes : {0, 4, 8, 24}) {
    try {
      check_promises(dtrain::parse_safetensors_header(text, data_bytes, "fuzz"), data_bytes);
    } catch (const dtrain::CheckpointError&) {
    }
  }
  return 0;
}
