// Any bytes as records of CIFAR: refused with a DataError, or every record has pixels in [0, 1] and
// a label of the classes, or is said to be bad.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/data/cifar.h"

namespace {

void try_file(std::string_view content, dtrain::CifarKind kind, dtrain::CifarLabels labels) {
  const dtrain::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  dtrain::write_all(fd.get(), std::as_bytes(std::span(content)), "memfd");
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  try {
    const dtrain::Cifar data({path, path}, kind, labels);
    std::vector<float> input(static_cast<std::size_t>(data.spec().input.shape.elements()));
    std::int64_t label = 0;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      bool bad = false;
      try {
        data.check(i, i + 1);
      } catch (const dtrain::DataError&) {
        bad = true;
      }
      try {
        data.read(i, std::as_writable_bytes(std::span(input)),
                  std::as_writable_bytes(std::span(&label, 1)));
        if (bad || label < 0 || label >= data.spec().classes) std::abort();
        for (const float value : input) {
          if (!(value >= 0 && value <= 1)) std::abort();
        }
      } catch (const dtrain::DataError&) {
        if (!bad) std::abort();
      }
      (void)data.origin(i);
    }
    (void)data.identity();
  } catch (const dtrain::DataError&) {
  }
}

}  // namespace

// The first byte chooses the kind, and whether the rest is repeated to fill records: inputs that
// the fuzzer makes are shorter than one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool ten = data[0] % 2 == 0;
  const std::size_t record = ten ? 3073 : 3074;
  if (data[0] / 2 % 2 == 1) {
    const std::string part = content;
    const std::size_t wanted = record * (1 + data[0] / 8 % 4) + (data[0] / 128);
    while (content.size() < wanted) content += part;
    content.resize(wanted);
  }
  const bool fine = data[0] / 4 % 2 == 0;
  try_file(content, ten ? dtrain::CifarKind::cifar10 : dtrain::CifarKind::cifar100,
           ten || fine ? dtrain::CifarLabels::fine : dtrain::CifarLabels::coarse);
  return 0;
}
