#include <cstring>
#include <numeric>

#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/elementwise.h"

namespace dtrain::ops {

namespace {

// An image as both layouts see it, in bytes: see Note [Channel blocks].
struct Blocks {
  std::size_t pixels;
  std::size_t channels;  // bytes of a pixel
  std::size_t from;      // bytes of a channel block
  std::size_t to;
  std::size_t run;  // bytes that are contiguous in both
};

// With the size known to the compiler a run is one or two vector moves.
template <std::size_t size>
void copy_runs(const std::byte* x, std::size_t step_x, std::byte* y, std::size_t step_y,
               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(y + i * step_y, x + i * step_x, size);
}

void copy_runs(std::size_t size, const std::byte* x, std::size_t step_x, std::byte* y,
               std::size_t step_y, std::size_t count) {
  switch (size) {
    case 16:
      return copy_runs<16>(x, step_x, y, step_y, count);
    case 32:
      return copy_runs<32>(x, step_x, y, step_y, count);
    case 64:
      return copy_runs<64>(x, step_x, y, step_y, count);
    default:
      for (std::size_t i = 0; i < count; ++i) std::memcpy(y + i * step_y, x + i * step_x, size);
  }
}

void convert_image(const Blocks& blocks, const std::byte* x, std::byte* y) {
  for (std::size_t c = 0; c < blocks.channels; c += blocks.run) {
    const std::byte* from = x + c / blocks.from * blocks.from * blocks.pixels + c % blocks.from;
    std::byte* to = y + c / blocks.to * blocks.to * blocks.pixels + c % blocks.to;
    copy_runs(blocks.run, from, blocks.from, to, blocks.to, blocks.pixels);
  }
}

}  // namespace

Tensor to_layout(OpContext& context, const Tensor& x, Layout layout) {
  if (x.layout() == layout) return x;
  const Shape& shape = x.shape();
  DTRAIN_CHECK(shape.rank() == 4, "an image layout of {}", to_string(shape));
  const Tensor y = Tensor::empty(shape, x.dtype(), context.allocator(), "to_layout", layout);
  if (x.elements() == 0) return y;
  const std::size_t size = size_of(x.dtype());
  const auto block_bytes = [&](Layout of) {
    return size * static_cast<std::size_t>(of.channel_block == 0 ? shape[3] : of.channel_block);
  };
  const std::size_t from = block_bytes(x.layout());
  const std::size_t to = block_bytes(layout);
  const Blocks blocks{.pixels = static_cast<std::size_t>(shape[1] * shape[2]),
                      .channels = size * static_cast<std::size_t>(shape[3]),
                      .from = from,
                      .to = to,
                      .run = std::gcd(from, to)};
  const std::size_t image = blocks.pixels * blocks.channels;
  const auto* source = static_cast<const std::byte*>(x.raw());
  auto* target = static_cast<std::byte*>(y.raw());
  parallel_ranges(context, shape[0], 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const std::size_t offset = static_cast<std::size_t>(n) * image;
      convert_image(blocks, source + offset, target + offset);
    }
  });
  return y;
}

}  // namespace dtrain::ops
