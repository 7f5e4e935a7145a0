// Any bytes as a file of tokens: refused with a DataError, or every window holds tokens of the
// vocabulary, or says where there is one outside.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/data/token_windows.h"

namespace {

void try_file(std::string_view content, const dtrain::TokenFileOptions& options,
              std::int64_t context, std::int64_t stride) {
  const dtrain::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  dtrain::write_all(fd.get(), std::as_bytes(std::span(content)), "memfd");
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  try {
    // The file twice: windows cross from one to the other.
    const dtrain::TokenWindows data(
        {.paths = {path, path}, .file = options, .context = context, .stride = stride});
    const auto length = static_cast<std::size_t>(context);
    std::vector<std::int32_t> input(length);
    std::vector<std::int64_t> target(length);
    bool bad = false;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      try {
        data.read(i, std::as_writable_bytes(std::span(input)),
                  std::as_writable_bytes(std::span(target)));
      } catch (const dtrain::DataError& error) {
        if (error.record() < 0) std::abort();
        bad = true;
        continue;
      }
      for (std::size_t t = 0; t < length; ++t) {
        if (input[t] < 0 || input[t] >= options.vocabulary) std::abort();
        if (target[t] < 0 || target[t] >= options.vocabulary) std::abort();
        if (t > 0 && target[t - 1] != input[t]) std::abort();
      }
      (void)data.origin(i);
    }
    try {
      data.check(0, data.size());
    } catch (const dtrain::DataError&) {
      if (!bad) std::abort();
    }
    (void)data.identity();
    (void)data.extent(0, data.size());
  } catch (const dtrain::DataError&) {
  }
}

std::string header(std::uint32_t magic, std::uint32_t version, std::uint32_t tokens) {
  std::string bytes(1024, '\0');
  const std::uint32_t fields[] = {magic, version, tokens};
  bytes.replace(0, sizeof fields, reinterpret_cast<const char*>(fields), sizeof fields);
  return bytes;
}

}  // namespace

// The first bytes choose the options, and how much of a header stands before the rest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 4, size - 4);
  constexpr int widths[] = {0, 1, 2, 4};
  constexpr dtrain::TokenFormat formats[] = {dtrain::TokenFormat::any, dtrain::TokenFormat::raw,
                                             dtrain::TokenFormat::llmc};
  dtrain::TokenFileOptions options{.vocabulary = 1 + std::int64_t{data[1]} * data[1] * 4,
                                   .width = widths[data[0] % 4],
                                   .format = formats[data[0] / 4 % 3]};
  if (options.width == 1) options.vocabulary = 256;
  const std::int64_t context = 1 + data[2] % 33;
  const std::int64_t stride = data[3] % 40;
  const auto count = [&](std::size_t width) {
    return static_cast<std::uint32_t>(rest.size() / width);
  };
  switch (data[0] / 12 % 4) {
    case 0:
      try_file(rest, options, context, stride);
      break;
    case 1:
      try_file(header(20240520, 1, count(2)) + rest, options, context, stride);
      break;
    case 2:
      try_file(header(20240801, 7, count(4)) + rest, options, context, stride);
      break;
    default:
      try_file(header(20240520, data[1], data[2]) + rest, options, context, stride);
      break;
  }
  return 0;
}
