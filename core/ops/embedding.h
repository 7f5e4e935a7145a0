// Rows of a table, by number.
#pragma once

#include "dtrain/core/ops/context.h"
#include "dtrain/core/tensor/tensor.h"

namespace dtrain::ops {

// tokens: [...] i32, table: [V, C]. Returns [..., C]: y[i] = table[tokens[i]]. With `positions`,
// [P, C], and tokens [..., T] with T <= P: also + positions[t]. A token outside [0, V) throws
// DTRAIN_CHECK: data sets check their tokens.
Tensor embedding(OpContext& context, const Tensor& tokens, const Tensor& table,
                 const Tensor& positions = {});

// dtable: [V, C] (+)= rows of dy, [..., C], by token, in the order of the tokens.
void embedding_backward(OpContext& context, const Tensor& tokens, const Tensor& dy,
                        const Tensor& dtable, bool adds);

// dpositions: [P, C] (+)= sums of dy, [..., T, C], over all but the last two axes, in order.
void embedding_backward_positions(OpContext& context, const Tensor& dy, const Tensor& dpositions,
                                  bool adds);

}  // namespace dtrain::ops
