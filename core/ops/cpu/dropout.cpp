#include "dtrain/core/ops/dropout.h"

#include <algorithm>

#include "dtrain/core/ops/cpu/dropout_row.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/philox-inl.h"
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// y = the kept of x, divided by 1 - p.
void apply_mask(const float* x, const std::uint32_t* words, std::size_t n, float p, float* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> d_words;
  const hn::RebindToSigned<decltype(d)> d_signed;
  const auto threshold = hn::Set(d, p);
  const auto divisor = hn::Set(d, 1.0f - p);
  for_each_vector(d, n, [&](std::size_t i, auto part) {
    const auto bits = hn::ShiftRight<8>(part.load(d_words, words + i));
    const auto unit = hn::Mul(hn::ConvertTo(d, hn::BitCast(d_signed, bits)), hn::Set(d, 0x1p-24f));
    const auto kept = hn::Div(part.load(d, x + i), divisor);
    part.store(hn::IfThenElseZero(hn::Ge(unit, threshold), kept), d, y + i);
  });
}

void dropout_kernel(const DropoutRow& row) {
  // Room for the last vector of blocks, which may be longer than the chunk.
  HWY_ALIGN std::uint32_t words[chunk_words + 64];
  const std::size_t elements = row.pixels * row.channels;
  for (std::size_t first = 0; first < elements; first += chunk_words) {
    const std::size_t size = std::min(chunk_words, elements - first);
    philox_words(row.key, row.position, first / 4, (size + 3) / 4, words);
    // Runs that are contiguous in memory: within one block of one pixel.
    for (std::size_t done = 0; done < size;) {
      const std::size_t pixel = (first + done) / row.channels;
      const std::size_t channel = (first + done) % row.channels;
      const std::size_t inside = channel % row.block;
      const std::size_t run = std::min(row.block - inside, size - done);
      const std::size_t offset = (channel / row.block * row.pixels + pixel) * row.block + inside;
      apply_mask(row.x + offset, words + done, run, row.p, row.y + offset);
      done += run;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(dropout_kernel);

Tensor dropout(OpContext& context, const Tensor& x, float p, RandomKey key,
               std::span<const std::int64_t> positions) {
  DTRAIN_CHECK(p >= 0 && p <= 1, "dropout of probability {}", p);
  DTRAIN_CHECK(x.shape().rank() >= 1 && x.shape()[0] == static_cast<std::int64_t>(positions.size()),
               "dropout of {} with {} positions", to_string(x.shape()), positions.size());
  const Tensor y = empty_like(context, x, "dropout");
  const std::int64_t row_elements = x.shape().elements_per_row();
  if (x.elements() == 0) return y;
  DropoutRow row{.x = x.data<float>(),
                 .y = y.data<float>(),
                 .pixels = 1,
                 .channels = static_cast<std::size_t>(row_elements),
                 .block = static_cast<std::size_t>(row_elements),
                 .key = key.bits(),
                 .position = 0,
                 .p = p};
  if (x.layout().channel_block != 0) {
    row.channels = static_cast<std::size_t>(x.shape()[3]);
    row.pixels = static_cast<std::size_t>(row_elements) / row.channels;
    row.block = static_cast<std::size_t>(x.layout().channel_block);
  }
  const std::int64_t grain = (elements_per_thread + row_elements - 1) / row_elements;
  parallel_ranges(context, x.shape()[0], grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      DropoutRow sample = row;
      sample.x += n * row_elements;
      sample.y += n * row_elements;
      sample.position = static_cast<std::uint64_t>(positions[static_cast<std::size_t>(n)]);
      HWY_DYNAMIC_DISPATCH(dropout_kernel)(sample);
    }
  });
  return y;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
