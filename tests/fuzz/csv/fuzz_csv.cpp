// Any bytes as a table: refused with a DataError, or every row can be read or is a bad sample.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/data/csv.h"

namespace {

void try_file(std::string_view content, bool classes) {
  const dtrain::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  dtrain::write_all(fd.get(), std::as_bytes(std::span(content)), "memfd");
  dtrain::config::Csv options;
  options.set_path("/proc/self/fd/" + std::to_string(fd.get()));
  options.add_features("a");
  options.add_features("b");
  options.add_targets("c");
  options.set_classes(classes);
  try {
    const dtrain::Csv table(options);
    if (table.size() < 1) std::abort();
    float input[2];
    std::vector<std::byte> target(table.spec().target.bytes());
    for (std::int64_t row = 0; row < table.size(); ++row) {
      try {
        table.read(row, std::as_writable_bytes(std::span(input)), target);
        if (!std::isfinite(input[0]) || !std::isfinite(input[1])) std::abort();
      } catch (const dtrain::DataError& error) {
        if (error.record() != row) std::abort();
      }
    }
    (void)table.identity();
  } catch (const dtrain::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_file(text, false);
  // Behind a header, so that it need not be found.
  try_file("a,b,c\n" + text, true);
  return 0;
}
