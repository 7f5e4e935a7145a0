#include "dtrain/data/gzip.h"

#include <algorithm>
#include <vector>

#include <zlib.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr int gzip_window = 15 + 16;  // zlib's code for "32 KiB window, gzip header"

}  // namespace

bool is_gzip(const InputFile& file) {
  std::byte magic[2];
  return file.read_at(0, magic) == 2 && magic[0] == std::byte{0x1F} && magic[1] == std::byte{0x8B};
}

std::uint64_t largest_unpacked(std::uint64_t gzip_bytes) {
  return 1032 * gzip_bytes;
}

struct GzipReader::State {
  explicit State(const InputFile& input) : file(input), packed(std::size_t{64} << 10) {
    if (::inflateInit2(&stream, gzip_window) != Z_OK) throw std::bad_alloc();
  }
  ~State() { ::inflateEnd(&stream); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Makes packed bytes available; false at the end of the file.
  bool refill() {
    if (stream.avail_in > 0) return true;
    const std::size_t n = file.read_at(offset, packed);
    offset += n;
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(n);
    return n > 0;
  }

  const InputFile& file;
  std::uint64_t offset = 0;  // of the packed bytes read so far
  std::vector<std::byte> packed;
  z_stream stream{};
  bool between_members = false;
  bool end = false;
};

GzipReader::GzipReader(const InputFile& file) : state_(std::make_unique<State>(file)) {}
GzipReader::~GzipReader() = default;

std::size_t GzipReader::read(std::span<std::byte> bytes) {
  State& s = *state_;
  const std::string& path = s.file.path();
  std::size_t done = 0;
  while (done < bytes.size() && !s.end) {
    if (!s.refill()) {
      if (!s.between_members) {
        throw DataError(path, -1, fmt::format("gzip data is cut off at byte {}", s.offset));
      }
      s.end = true;
      break;
    }
    if (s.between_members) {
      // A gzip file may hold several members, one after the other.
      ::inflateReset(&s.stream);
      s.between_members = false;
    }
    const auto room = static_cast<uInt>(std::min<std::size_t>(bytes.size() - done, 1u << 30));
    s.stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + done);
    s.stream.avail_out = room;
    const int result = ::inflate(&s.stream, Z_NO_FLUSH);
    done += room - s.stream.avail_out;
    if (result == Z_STREAM_END) {
      s.between_members = true;
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw DataError(
          path, -1,
          fmt::format("gzip data is corrupt near byte {}: {}", s.offset - s.stream.avail_in,
                      s.stream.msg != nullptr ? s.stream.msg : "unknown format"));
    }
  }
  return done;
}

}  // namespace dtrain
