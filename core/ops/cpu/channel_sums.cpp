#include "dtrain/core/ops/cpu/channel_sums.h"

#include <algorithm>

#include "dtrain/core/ops/cpu/channel_chunks.h"
#include "dtrain/core/ops/cpu/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/channel_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

// sums[c] of a chunk, x: [pixels][width].
void sums_of_chunk(std::size_t pixels, std::size_t width, const float* x, float* sums) {
  const hn::ScalableTag<float> d;
  for_each_vector(d, width, [&](std::size_t c, auto part) {
    // Four sums, so that additions need not wait for each other.
    auto s0 = hn::Zero(d);
    auto s1 = hn::Zero(d);
    auto s2 = hn::Zero(d);
    auto s3 = hn::Zero(d);
    const float* at = x + c;
    std::size_t p = 0;
    for (; p + 4 <= pixels; p += 4, at += 4 * width) {
      s0 = hn::Add(s0, part.load(d, at));
      s1 = hn::Add(s1, part.load(d, at + width));
      s2 = hn::Add(s2, part.load(d, at + 2 * width));
      s3 = hn::Add(s3, part.load(d, at + 3 * width));
    }
    for (; p < pixels; ++p, at += width) s0 = hn::Add(s0, part.load(d, at));
    part.store(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), d, sums + c);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(sums_of_chunk);

void channel_sums(OpContext& context, const Tensor& x, std::span<float> sums) {
  const ChannelChunks chunks(channel_blocks(x));
  const ChannelBlocks& blocks = chunks.blocks();
  DTRAIN_CHECK(static_cast<std::int64_t>(sums.size()) == blocks.channels(),
               "{} sums for {} channels", sums.size(), blocks.channels());
  const float* data = x.data<float>();
  const auto width = static_cast<std::size_t>(blocks.width);
  const Scratch<float> partials(context, chunks.count() * blocks.width);
  chunks.for_each(context, [&](std::int64_t index, const ChannelChunk& chunk) {
    HWY_DYNAMIC_DISPATCH(sums_of_chunk)
    (static_cast<std::size_t>(chunk.pixels), width, data + chunk.offset,
     partials.data() + index * blocks.width);
  });
  const Scratch<double> totals(context, blocks.channels());
  std::fill_n(totals.data(), blocks.channels(), 0.0);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    double* total = totals.data() + chunks.at(i).channel;
    const float* partial = partials.data() + i * blocks.width;
    for (std::size_t c = 0; c < width; ++c) total[c] += partial[c];
  }
  for (std::size_t c = 0; c < sums.size(); ++c) sums[c] = static_cast<float>(totals.data()[c]);
}

}  // namespace dtrain::ops
#endif
