#include "dtrain/core/ops/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "dtrain/core/ops/cpu/attention_head.h"
#include "dtrain/core/ops/cpu/operands.h"
#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/cpu/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/core/ops/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "dtrain/core/ops/cpu/philox-inl.h"
#include "dtrain/core/ops/cpu/simd-inl.h"
#include "dtrain/core/ops/cpu/simd_math-inl.h"
#include "dtrain/core/ops/cpu/tile_product-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops {
namespace HWY_NAMESPACE {

constexpr std::size_t tile = attention_tile;
constexpr float infinity = std::numeric_limits<float>::infinity();

// Hands out the parts of a block of scratch memory.
class Parts {
 public:
  explicit Parts(float* next) : next_(next) {}
  float* take(std::size_t count) { return std::exchange(next_, next_ + count); }

 private:
  float* next_;
};

// to: [rows][width] = from: [rows][size] * factor, and zeros behind.
HWY_INLINE void pack_rows(ConstRows from, std::size_t rows, std::size_t size, float factor,
                          std::size_t width, float* to) {
  const TileTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, factor);
  for (std::size_t r = 0; r < rows; ++r, to += width) {
    const float* row = from.data + r * from.stride;
    for (std::size_t i = 0; i < width; i += lanes) {
      auto v = hn::Zero(d);
      if (i + lanes <= size) {
        v = hn::LoadU(d, row + i);
      } else if (i < size) {
        v = load_part(d, row + i, size - i);
      }
      hn::StoreU(hn::Mul(v, by), d, to + i);
    }
  }
}

// to: [tiles][size][64] = the transposed rows of from: [keys][size] times factor, and zeros behind.
HWY_INLINE void pack_transposed(ConstRows from, std::size_t keys, std::size_t size, float factor,
                                float* to) {
  for (std::size_t first = 0; first < keys; first += tile, to += size * tile) {
    const std::size_t count = std::min(tile, keys - first);
    if (count < tile) std::fill_n(to, size * tile, 0.0f);
    // A few columns at a time, so that the lines written to stay in cache.
    for (std::size_t i0 = 0; i0 < size; i0 += 16) {
      const std::size_t i1 = std::min(size, i0 + 16);
      for (std::size_t s = 0; s < count; ++s) {
        const float* row = from.data + (first + s) * from.stride;
        for (std::size_t i = i0; i < i1; ++i) to[i * tile + s] = row[i] * factor;
      }
    }
  }
}

// Keys of a tile that query t sees, counted from the tile's first.
HWY_INLINE std::size_t seen_keys(const AttentionHead& head, std::size_t query, std::size_t key) {
  const std::size_t end = head.causal ? std::min(head.keys, query + 1) : head.keys;
  return end <= key ? 0 : std::min(tile, end - key);
}

// Key tiles that the queries up to `last` see.
HWY_INLINE std::size_t seen_tiles(const AttentionHead& head, std::size_t last_query) {
  return head.causal ? std::min(head.tiles(), last_query / tile + 1) : head.tiles();
}

// Minus infinity where a query must not look.
HWY_INLINE void mask_scores(const AttentionHead& head, std::size_t key, std::size_t seen,
                            float* scores) {
  std::fill(scores + seen, scores + tile, -infinity);
  if (head.key_mask == nullptr) return;
  for (std::size_t s = 0; s < seen; ++s) {
    if (head.key_mask[key + s] == 0) scores[s] = -infinity;
  }
}

// What dropout multiplies the probabilities of a tile's row with: 0, or 1 / (1 - p).
HWY_INLINE void dropout_factors(const AttentionHead& head, std::size_t query, std::size_t key,
                                float* factors) {
  HWY_ALIGN std::uint32_t words[tile + 64];
  const std::uint64_t word = head.first_word + query * head.words_per_query() + key;
  philox_words(head.random_key, head.position, word / 4, tile / 4, words);
  const TileTag d;
  const hn::RebindToUnsigned<TileTag> d_words;
  const hn::RebindToSigned<TileTag> d_signed;
  const auto threshold = hn::Set(d, head.dropout);
  const auto factor = hn::Set(d, 1.0f / (1.0f - head.dropout));
  for (std::size_t s = 0; s < tile; s += hn::Lanes(d)) {
    const auto random = hn::ShiftRight<8>(hn::LoadU(d_words, words + s));
    const auto unit =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(d_signed, random)), hn::Set(d, 0x1p-24f));
    hn::StoreU(hn::IfThenElseZero(hn::Ge(unit, threshold), factor), d, factors + s);
  }
}

// A query's running softmax.
struct Running {
  float max = -infinity;
  float sum = 0;
};

// Scores of a row of a tile to exponentials about the running maximum; returns what the sums so far
// are to be multiplied with.
HWY_INLINE float exponentiate(Running& running, float* scores) {
  const TileTag d;
  const std::size_t lanes = hn::Lanes(d);
  auto largest = hn::Set(d, running.max);
  for (std::size_t s = 0; s < tile; s += lanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + s));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  // Where no key was seen yet, anything serves: minus infinity stays, and NaN is not hidden.
  const auto about = hn::Set(d, max == -infinity ? 0.0f : max);
  auto sum = hn::Zero(d);
  for (std::size_t s = 0; s < tile; s += lanes) {
    const auto e = exp(d, hn::Sub(hn::LoadU(d, scores + s), about));
    hn::StoreU(e, d, scores + s);
    sum = hn::Add(sum, e);
  }
  const float factor =
      running.max == max ? 1.0f : hn::GetLane(exp(d, hn::Sub(hn::Set(d, running.max), about)));
  running.max = max;
  running.sum = running.sum * factor + sum_of_lanes(d, sum);
  return factor;
}

HWY_INLINE void multiply_row(std::size_t width, float factor, float* row) {
  const TileTag d;
  const auto by = hn::Set(d, factor);
  for (std::size_t i = 0; i < width; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), by), d, row + i);
  }
}

HWY_INLINE void multiply_rows(const float* factors, float* row) {
  const TileTag d;
  for (std::size_t i = 0; i < tile; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), hn::LoadU(d, factors + i)), d, row + i);
  }
}

// to: [size] = from * factor.
HWY_INLINE void write_row(std::size_t size, const float* from, float factor, float* to) {
  const TileTag d;
  for_each_vector(d, size, [&](std::size_t i, auto part) {
    part.store(hn::Mul(part.load(d, from + i), hn::Set(d, factor)), d, to + i);
  });
}

void attention_kernel(const AttentionHead& head, const AttentionForward& out, float* scratch) {
  const std::size_t width = head.padded_size();
  Parts parts(scratch);
  float* const keys = parts.take(head.tiles() * tile * head.size);
  float* const values = parts.take(head.tiles() * tile * width);
  float* const scores = parts.take(tile * tile);
  float* const sums = parts.take(tile * width);
  pack_transposed(head.k, head.keys, head.size, head.scale, keys);
  pack_rows(head.v, head.keys, head.size, 1, width, values);
  for (std::size_t first = 0; first < head.queries; first += tile) {
    const std::size_t rows = std::min(tile, head.queries - first);
    Running running[tile];
    std::fill_n(sums, tile * width, 0.0f);
    const std::size_t tiles = seen_tiles(head, first + rows - 1);
    for (std::size_t j = 0; j < tiles; ++j) {
      const std::size_t key = j * tile;
      const TileOperand queries{head.q.data + first * head.q.stride, head.q.stride, 1};
      tile_product<false>(rows, tile, head.size, queries, keys + key * head.size, tile, scores,
                          tile);
      for (std::size_t r = 0; r < rows; ++r) {
        float* const row = scores + r * tile;
        mask_scores(head, key, seen_keys(head, first + r, key), row);
        const float factor = exponentiate(running[r], row);
        if (factor != 1) multiply_row(width, factor, sums + r * width);
        if (head.dropout > 0) {
          HWY_ALIGN float factors[tile];
          dropout_factors(head, first + r, key, factors);
          multiply_rows(factors, row);
        }
      }
      tile_product<true>(rows, width, std::min(tile, head.keys - key), {scores, tile, 1},
                         values + key * width, width, sums, width);
    }
    const TileTag d;
    for (std::size_t r = 0; r < rows; ++r) {
      const bool blind = running[r].sum == 0;
      out.log_sums[first + r] =
          blind ? infinity : running[r].max + hn::GetLane(hn::Log(d, hn::Set(d, running[r].sum)));
      write_row(head.size, sums + r * width, blind ? 0.0f : 1 / running[r].sum,
                out.y.data + (first + r) * out.y.stride);
    }
  }
}

HWY_INLINE float dot(std::size_t size, const float* a, const float* b) {
  const TileTag d;
  auto sum = hn::Zero(d);
  for_each_vector(d, size, [&](std::size_t i, auto part) {
    sum = hn::MulAdd(part.load(d, a + i), part.load(d, b + i), sum);
  });
  return sum_of_lanes(d, sum);
}

// Row of a tile: scores to probabilities (dropped out), and their gradients to those of the scores.
HWY_INLINE void softmax_gradient(float log_sum, float delta, const float* factors, float* scores,
                                 float* gradients) {
  const TileTag d;
  for (std::size_t s = 0; s < tile; s += hn::Lanes(d)) {
    const auto p = exp(d, hn::Sub(hn::LoadU(d, scores + s), hn::Set(d, log_sum)));
    auto dp = hn::LoadU(d, gradients + s);
    auto dropped = p;
    if (factors != nullptr) {
      const auto factor = hn::LoadU(d, factors + s);
      dp = hn::Mul(dp, factor);
      dropped = hn::Mul(p, factor);
    }
    hn::StoreU(dropped, d, scores + s);
    hn::StoreU(hn::Mul(p, hn::Sub(dp, hn::Set(d, delta))), d, gradients + s);
  }
}

void attention_backward_kernel(const AttentionHead& head, const AttentionBackward& out,
                               float* scratch) {
  const std::size_t width = head.padded_size();
  const std::size_t padded_keys = head.tiles() * tile;
  Parts parts(scratch);
  float* const keys_t = parts.take(padded_keys * head.size);
  float* const values_t = parts.take(padded_keys * head.size);
  float* const keys = parts.take(padded_keys * width);
  float* const dk = parts.take(padded_keys * width);
  float* const dv = parts.take(padded_keys * width);
  float* const scores = parts.take(tile * tile);
  float* const gradients = parts.take(tile * tile);
  float* const queries = parts.take(tile * width);
  float* const dy = parts.take(tile * width);
  float* const dq = parts.take(tile * width);
  pack_transposed(head.k, head.keys, head.size, head.scale, keys_t);
  pack_transposed(head.v, head.keys, head.size, 1, values_t);
  pack_rows(head.k, head.keys, head.size, head.scale, width, keys);
  std::fill_n(dk, padded_keys * width, 0.0f);
  std::fill_n(dv, padded_keys * width, 0.0f);
  for (std::size_t first = 0; first < head.queries; first += tile) {
    const std::size_t rows = std::min(tile, head.queries - first);
    const ConstRows from_q{head.q.data + first * head.q.stride, head.q.stride};
    const ConstRows from_dy{out.dy.data + first * out.dy.stride, out.dy.stride};
    pack_rows(from_q, rows, head.size, 1, width, queries);
    pack_rows(from_dy, rows, head.size, 1, width, dy);
    std::fill_n(dq, tile * width, 0.0f);
    float delta[tile];
    for (std::size_t r = 0; r < rows; ++r) {
      delta[r] = dot(head.size, out.y.data + (first + r) * out.y.stride,
                     from_dy.data + r * from_dy.stride);
    }
    const std::size_t tiles = seen_tiles(head, first + rows - 1);
    for (std::size_t j = 0; j < tiles; ++j) {
      const std::size_t key = j * tile;
      const std::size_t count = std::min(tile, head.keys - key);
      tile_product<false>(rows, tile, head.size, {queries, width, 1}, keys_t + key * head.size,
                          tile, scores, tile);
      tile_product<false>(rows, tile, head.size, {dy, width, 1}, values_t + key * head.size, tile,
                          gradients, tile);
      for (std::size_t r = 0; r < rows; ++r) {
        mask_scores(head, key, seen_keys(head, first + r, key), scores + r * tile);
        HWY_ALIGN float factors[tile];
        if (head.dropout > 0) dropout_factors(head, first + r, key, factors);
        softmax_gradient(out.log_sums[first + r], delta[r], head.dropout > 0 ? factors : nullptr,
                         scores + r * tile, gradients + r * tile);
      }
      tile_product<true>(count, width, rows, {scores, 1, tile}, dy, width, dv + key * width, width);
      tile_product<true>(rows, width, count, {gradients, tile, 1}, keys + key * width, width, dq,
                         width);
      tile_product<true>(count, width, rows, {gradients, 1, tile}, queries, width, dk + key * width,
                         width);
    }
    for (std::size_t r = 0; r < rows; ++r) {
      write_row(head.size, dq + r * width, 1, out.dq.data + (first + r) * out.dq.stride);
    }
  }
  for (std::size_t s = 0; s < head.keys; ++s) {
    write_row(head.size, dk + s * width, head.scale, out.dk.data + s * out.dk.stride);
    write_row(head.size, dv + s * width, 1, out.dv.data + s * out.dv.stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dtrain::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain::ops {

HWY_EXPORT(attention_kernel);
HWY_EXPORT(attention_backward_kernel);

namespace {

// A [N, rows, C] part of a tensor whose rows may hold more than C columns.
struct Sequences {
  float* data;
  std::int64_t rows;
  std::int64_t stride;  // of a row

  float* head(std::int64_t n, std::int64_t h, std::int64_t size) const {
    return data + n * rows * stride + h * size;
  }
  ConstRows const_rows(std::int64_t n, std::int64_t h, std::int64_t size) const {
    return {head(n, h, size), static_cast<std::size_t>(stride)};
  }
  Rows mutable_rows(std::int64_t n, std::int64_t h, std::int64_t size) const {
    return {head(n, h, size), static_cast<std::size_t>(stride)};
  }
};

Sequences sequences(const Tensor& x) {
  return {x.data<float>(), x.shape()[1], x.shape()[2]};
}

// Columns [part * C, (part + 1) * C) of [N, T, 3 C].
Sequences third(const Tensor& qkv, std::int64_t part) {
  const std::int64_t columns = qkv.shape()[2];
  return {qkv.data<float>() + part * (columns / 3), qkv.shape()[1], columns};
}

struct Operands {
  std::int64_t samples;
  std::int64_t columns;  // C
  Sequences q, k, v;
};

std::int64_t check_options(const Operands& x, const AttentionOptions& options,
                           std::string_view who) {
  DTRAIN_CHECK(options.heads >= 1 && x.columns % options.heads == 0, "{}: {} columns in {} heads",
               who, x.columns, options.heads);
  DTRAIN_CHECK(!options.causal || x.q.rows == x.k.rows, "{}: causal with {} queries and {} keys",
               who, x.q.rows, x.k.rows);
  DTRAIN_CHECK(
      !options.key_mask.defined() || (options.key_mask.dtype() == DType::u8 &&
                                      options.key_mask.shape() == (Shape{x.samples, x.k.rows})),
      "{}: a mask of shape {}", who, to_string(options.key_mask.shape()));
  DTRAIN_CHECK(options.dropout >= 0 && options.dropout < 1, "{}: dropout of {}", who,
               options.dropout);
  DTRAIN_CHECK(
      options.dropout == 0 || static_cast<std::int64_t>(options.positions.size()) == x.samples,
      "{}: {} positions for {} samples", who, options.positions.size(), x.samples);
  return x.columns / options.heads;
}

AttentionHead make_head(const Operands& x, const AttentionOptions& options, std::int64_t n,
                        std::int64_t h, std::int64_t size) {
  AttentionHead head{.queries = static_cast<std::size_t>(x.q.rows),
                     .keys = static_cast<std::size_t>(x.k.rows),
                     .size = static_cast<std::size_t>(size),
                     .scale = 1 / std::sqrt(static_cast<float>(size)),
                     .causal = options.causal,
                     .key_mask = nullptr,
                     .q = x.q.const_rows(n, h, size),
                     .k = x.k.const_rows(n, h, size),
                     .v = x.v.const_rows(n, h, size),
                     .dropout = options.dropout,
                     .random_key = options.key.bits(),
                     .position = 0,
                     .first_word = 0};
  if (options.key_mask.defined()) {
    head.key_mask = options.key_mask.data<std::uint8_t>() + n * x.k.rows;
  }
  if (options.dropout > 0) {
    head.position = static_cast<std::uint64_t>(options.positions[static_cast<std::size_t>(n)]);
    head.first_word = static_cast<std::uint64_t>(h * x.q.rows) * head.words_per_query();
  }
  return head;
}

// Scratch memory for each thread of a loop, taken before it begins: how much of it threads need at
// the same time must not depend on how they run.
class ThreadScratch {
 public:
  ThreadScratch(const OpContext& context, std::size_t size)
      : size_(size), all_(context, context.threads() * static_cast<std::int64_t>(size)) {}
  // One's own; once per thread.
  float* take() { return all_.data() + static_cast<std::size_t>(next_.fetch_add(1)) * size_; }

 private:
  std::size_t size_;
  Scratch<float> all_;
  std::atomic<int> next_ = 0;
};

// Runs body(n, h, scratch) for head h of sample n, all heads side by side; each thread has `size`
// floats of scratch memory.
template <typename Body>
void for_each_head(OpContext& context, const Operands& x, const AttentionOptions& options,
                   std::size_t size, Body body) {
  ThreadScratch scratch(context, size);
  parallel_ranges(context, x.samples * options.heads, 1,
                  [&](std::int64_t first, std::int64_t last) {
                    float* const mine = scratch.take();
                    for (std::int64_t i = first; i < last; ++i) {
                      body(i / options.heads, i % options.heads, mine);
                    }
                  });
}

AttentionOutput forward(OpContext& context, const Operands& x, const AttentionOptions& options) {
  const std::int64_t size = check_options(x, options, "attention");
  const AttentionOutput out{
      .y = Tensor::empty({x.samples, x.q.rows, x.columns}, DType::f32, context.allocator(),
                         "attention"),
      .log_sums = Tensor::empty({x.samples, options.heads, x.q.rows}, DType::f32,
                                context.allocator(), "attention")};
  if (x.samples == 0) return out;
  for_each_head(context, x, options, make_head(x, options, 0, 0, size).forward_scratch(),
                [&](std::int64_t n, std::int64_t h, float* scratch) {
                  HWY_DYNAMIC_DISPATCH(attention_kernel)
                  (make_head(x, options, n, h, size),
                   {.y = sequences(out.y).mutable_rows(n, h, size),
                    .log_sums = out.log_sums.data<float>() + (n * options.heads + h) * x.q.rows},
                   scratch);
                });
  return out;
}

void backward(OpContext& context, const Operands& x, const AttentionOutput& forward,
              const Tensor& dy, const AttentionOptions& options, const Operands& gradients) {
  const std::int64_t size = check_options(x, options, "attention_backward");
  check_alike(forward.y, dy, "attention_backward");
  if (x.samples == 0) return;
  for_each_head(context, x, options, make_head(x, options, 0, 0, size).backward_scratch(),
                [&](std::int64_t n, std::int64_t h, float* scratch) {
                  HWY_DYNAMIC_DISPATCH(attention_backward_kernel)
                  (make_head(x, options, n, h, size),
                   {.y = sequences(forward.y).const_rows(n, h, size),
                    .dy = sequences(dy).const_rows(n, h, size),
                    .log_sums = forward.log_sums.data<float>() + (n * options.heads + h) * x.q.rows,
                    .dq = gradients.q.mutable_rows(n, h, size),
                    .dk = gradients.k.mutable_rows(n, h, size),
                    .dv = gradients.v.mutable_rows(n, h, size)},
                   scratch);
                });
}

Operands packed(const Tensor& qkv, std::string_view who) {
  check_plain(qkv, who);
  DTRAIN_CHECK(qkv.shape().rank() == 3 && qkv.shape()[2] % 3 == 0,
               "{}: queries, keys and values of {}", who, to_string(qkv.shape()));
  return {qkv.shape()[0], qkv.shape()[2] / 3, third(qkv, 0), third(qkv, 1), third(qkv, 2)};
}

Operands separate(const Tensor& q, const Tensor& k, const Tensor& v, std::string_view who) {
  check_alike(k, v, who);
  DTRAIN_CHECK(q.shape().rank() == 3 && k.shape().rank() == 3 && q.shape()[0] == k.shape()[0] &&
                   q.shape()[2] == k.shape()[2],
               "{}: queries {} and keys {}", who, to_string(q.shape()), to_string(k.shape()));
  return {q.shape()[0], q.shape()[2], sequences(q), sequences(k), sequences(v)};
}

}  // namespace

AttentionOutput attention(OpContext& context, const Tensor& qkv, const AttentionOptions& options) {
  return forward(context, packed(qkv, "attention"), options);
}

Tensor attention_backward(OpContext& context, const Tensor& qkv, const AttentionOutput& forward,
                          const Tensor& dy, const AttentionOptions& options) {
  const Tensor dqkv = empty_like(context, qkv, "attention_backward");
  backward(context, packed(qkv, "attention_backward"), forward, dy, options,
           packed(dqkv, "attention_backward"));
  return dqkv;
}

AttentionOutput attention(OpContext& context, const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options) {
  return forward(context, separate(q, k, v, "attention"), options);
}

AttentionGradients attention_backward(OpContext& context, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const AttentionOutput& forward,
                                      const Tensor& dy, const AttentionOptions& options) {
  const AttentionGradients gradients{.dq = empty_like(context, q, "attention_backward"),
                                     .dk = empty_like(context, k, "attention_backward"),
                                     .dv = empty_like(context, v, "attention_backward")};
  backward(context, separate(q, k, v, "attention_backward"), forward, dy, options,
           separate(gradients.dq, gradients.dk, gradients.dv, "attention_backward"));
  return gradients;
}

}  // namespace dtrain::ops
#endif  // HWY_ONCE
