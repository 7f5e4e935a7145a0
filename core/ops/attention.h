// Scaled dot-product attention: softmax(q k^T / sqrt(D)) v per head, by tiles, as flash attention
// does it: the matrix of scores is never stored, in neither direction.
#pragma once

#include <cstdint>
#include <span>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/random/philox.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

struct AttentionOptions {
  std::int64_t heads = 1;
  bool causal = false;   // query t sees keys 0 to t; as many queries as keys
  Tensor key_mask = {};  // [N, S] u8: keys with 0 are padding, seen by no query; undefined: none
  // Dropout of probabilities: that of head h, query t and key s is element
  // (h T + t) S' + s of the sample, S' = S rounded up to 4; see ops::dropout.
  float dropout = 0;
  RandomKey key{0};
  std::span<const std::int64_t> positions = {};  // [N] of the samples in the global batch
};

struct AttentionOutput {
  Tensor y;         // [N, T, C]
  Tensor log_sums;  // [N, heads, T]: log of the sum of the exponentials of a query's scores
};

// qkv: [N, T, 3 C]: queries, keys and values side by side; head h of each has the columns
// [h D, (h + 1) D), D = C / heads. A query that sees no key gives zeros.
AttentionOutput attention(OpContext& context, const Tensor& qkv, const AttentionOptions& options);
// Returns dqkv. forward: what attention() returned.
Tensor attention_backward(OpContext& context, const Tensor& qkv, const AttentionOutput& forward,
                          const Tensor& dy, const AttentionOptions& options);

// The same of queries [N, T, C] over keys and values [N, S, C] of their own.
AttentionOutput attention(OpContext& context, const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options);
struct AttentionGradients {
  Tensor dq;
  Tensor dk;
  Tensor dv;
};
AttentionGradients attention_backward(OpContext& context, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const AttentionOutput& forward,
                                      const Tensor& dy, const AttentionOptions& options);

}  // namespace dtrain::ops
