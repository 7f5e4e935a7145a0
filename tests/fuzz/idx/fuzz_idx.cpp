// Any bytes as an IDX file, plain or gzip: refused with a DataError, or its items can be read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <vector>

#include <zlib.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/files.h"
#include "dtrain/data/idx.h"

namespace {

void try_file(std::string_view content) {
  const dtrain::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  dtrain::write_all(fd.get(), std::as_bytes(std::span(content)), "memfd");
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  for (const dtrain::IdxKind kind : {dtrain::IdxKind::labels, dtrain::IdxKind::images}) {
    try {
      const dtrain::IdxFile file(path, kind);
      std::vector<std::uint8_t> item(file.item_bytes());
      std::vector<std::uint8_t> all(static_cast<std::size_t>(file.count()) * file.item_bytes());
      file.read_all(all);
      for (const std::int64_t i : {std::int64_t{0}, file.count() / 2, file.count() - 1}) {
        file.read(i, item);
        if (item[0] != all[static_cast<std::size_t>(i) * item.size()]) std::abort();
      }
      (void)file.identity();
    } catch (const dtrain::DataError&) {
    }
  }
}

std::string gzip(std::string_view plain) {
  z_stream stream{};
  if (::deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string packed(::deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

}  // namespace

// The first byte chooses how much of a valid file stands before the rest, so that no search is
// spent on magic numbers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string labels("\x00\x00\x08\x01", 4);
  const std::string images("\x00\x00\x08\x03", 4);
  switch (data[0] % 6) {
    case 0:
      try_file(rest);
      break;
    case 1:
      try_file(labels + rest);
      break;
    case 2:
      try_file(images + rest);
      break;
    case 3:
      try_file(gzip(labels + rest));
      break;
    case 4:
      try_file(gzip(images + rest));
      break;
    // A gzip header without a name, and the rest as deflated data.
    default:
      try_file(std::string("\x1F\x8B\x08\x00\x00\x00\x00\x00\x00\x03", 10) + rest);
      break;
  }
  return 0;
}
