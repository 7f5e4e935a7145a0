#include "dtrain/core/optim/sweep.h"

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/reduce.h"

namespace dtrain {

namespace {

std::int64_t blocks_of(const ParameterSegment& segment) {
  return (segment.size + ops::block_elements - 1) / ops::block_elements;
}

}  // namespace

void check_blocks(std::span<const float> weights, std::span<const float> gradients,
                  std::span<const std::span<float>> state, std::size_t states,
                  std::span<const ParameterSegment> segments) {
  DTRAIN_CHECK(gradients.size() >= weights.size(), "{} gradients for {} weights", gradients.size(),
               weights.size());
  DTRAIN_CHECK(state.size() == states, "{} state blocks instead of {}", state.size(), states);
  for (const std::span<float> block : state) {
    DTRAIN_CHECK(block.size() >= weights.size(), "{} values of state for {} weights", block.size(),
                 weights.size());
  }
  const auto elements = static_cast<std::int64_t>(weights.size());
  for (const ParameterSegment& segment : segments) {
    DTRAIN_CHECK(
        segment.offset >= 0 && segment.size >= 0 && segment.offset + segment.size <= elements,
        "segment of {} at {} in {} weights", segment.size, segment.offset, elements);
  }
}

void sweep(std::span<const ParameterSegment> segments, ThreadPool& pool,
           const std::function<void(const ParameterSegment&, std::int64_t, std::int64_t)>& body) {
  std::int64_t blocks = 0;
  for (const ParameterSegment& segment : segments) blocks += blocks_of(segment);
  pool.parallel_for(blocks, [&](std::int64_t first, std::int64_t last) {
    std::int64_t start = 0;  // number of the segment's first block
    for (const ParameterSegment& segment : segments) {
      const std::int64_t from = std::max(first, start) - start;
      start += blocks_of(segment);
      const std::int64_t to = std::min(last, start) - (start - blocks_of(segment));
      if (from >= to) continue;
      const std::int64_t begin = from * ops::block_elements;
      const std::int64_t end = std::min(to * ops::block_elements, segment.size);
      body(segment, segment.offset + begin, end - begin);
    }
  });
}

}  // namespace dtrain
