#include "dtrain/core/ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "dtrain/core/ops/cpu/parallel.h"
#include "dtrain/core/ops/elementwise.h"

namespace dtrain::ops {

namespace {

void check_table(const Tensor& table, std::string_view who) {
  DTRAIN_CHECK(table.shape().rank() == 2 && table.dtype() == DType::f32, "{}: a table {} {}", who,
               to_string(table.dtype()), to_string(table.shape()));
}

// Columns that a thread takes of a table, at least: a cache line's worth.
std::int64_t column_grain(std::int64_t columns, int threads) {
  return std::max<std::int64_t>(16, (columns / threads + 15) / 16 * 16);
}

}  // namespace

Tensor embedding(OpContext& context, const Tensor& tokens, const Tensor& table,
                 const Tensor& positions) {
  check_table(table, "embedding");
  const std::int64_t rows = table.shape()[0];
  const std::int64_t columns = table.shape()[1];
  std::vector<std::int64_t> sizes(tokens.shape().sizes().begin(), tokens.shape().sizes().end());
  sizes.push_back(columns);
  const Tensor y = Tensor::empty(Shape(sizes), DType::f32, context.allocator(), "embedding");
  const bool has_positions = positions.defined();
  const std::int64_t length = has_positions ? tokens.shape()[-1] : 1;
  if (has_positions) {
    check_table(positions, "embedding");
    DTRAIN_CHECK(positions.shape()[1] == columns && positions.shape()[0] >= length,
                 "embedding: positions {} for tokens {}", to_string(positions.shape()),
                 to_string(tokens.shape()));
  }
  if (tokens.elements() == 0) return y;
  const std::span<const std::int32_t> ids = tokens.values<std::int32_t>();
  const std::span<const float> from = table.values<float>();
  const std::span<float> to = y.values<float>();
  const auto width = static_cast<std::size_t>(columns);
  parallel_ranges(
      context, tokens.elements(), std::max<std::int64_t>(1, elements_per_thread / columns),
      [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const std::int32_t id = ids[static_cast<std::size_t>(i)];
          DTRAIN_CHECK(id >= 0 && id < rows, "token {} at {} is not one of {}", id, i, rows);
          const auto row = to.subspan(static_cast<std::size_t>(i) * width, width);
          std::ranges::copy(from.subspan(static_cast<std::size_t>(id) * width, width), row.begin());
          if (!has_positions) continue;
          add_in_place(row, positions.values<float>().subspan(
                                static_cast<std::size_t>(i % length) * width, width));
        }
      });
  return y;
}

void embedding_backward(OpContext& context, const Tensor& tokens, const Tensor& dy,
                        const Tensor& dtable, bool adds) {
  check_table(dtable, "embedding_backward");
  const std::int64_t columns = dtable.shape()[1];
  const std::int64_t rows = dtable.shape()[0];
  DTRAIN_CHECK(dy.elements() == tokens.elements() * columns, "embedding_backward: {} for tokens {}",
               to_string(dy.shape()), to_string(tokens.shape()));
  const std::span<const std::int32_t> ids = tokens.values<std::int32_t>();
  float* const sums = dtable.data<float>();
  const float* const from = dy.data<float>();
  // Threads share the columns, so each sum is taken in the order of the tokens.
  parallel_ranges(context, columns, column_grain(columns, context.threads()),
                  [&](std::int64_t first, std::int64_t last) {
                    const auto width = static_cast<std::size_t>(last - first);
                    for (std::int64_t row = 0; !adds && row < rows; ++row) {
                      std::fill_n(sums + row * columns + first, width, 0.0f);
                    }
                    for (std::size_t i = 0; i < ids.size(); ++i) {
                      DTRAIN_CHECK(ids[i] >= 0 && ids[i] < rows, "token {} is not one of {}",
                                   ids[i], rows);
                      add_in_place({sums + ids[i] * columns + first, width},
                                   {from + static_cast<std::int64_t>(i) * columns + first, width});
                    }
                  });
}

void embedding_backward_positions(OpContext& context, const Tensor& dy, const Tensor& dpositions,
                                  bool adds) {
  check_table(dpositions, "embedding_backward_positions");
  const std::int64_t columns = dpositions.shape()[1];
  const std::int64_t length = dy.shape()[-2];
  DTRAIN_CHECK(dy.shape()[-1] == columns && length <= dpositions.shape()[0],
               "embedding_backward_positions: {} for {}", to_string(dy.shape()),
               to_string(dpositions.shape()));
  float* const sums = dpositions.data<float>();
  if (!adds) {
    std::fill_n(sums + length * columns, (dpositions.shape()[0] - length) * columns, 0.0f);
  }
  if (dy.elements() == 0) {
    if (!adds) std::fill_n(sums, length * columns, 0.0f);
    return;
  }
  const std::int64_t sequences = dy.elements() / (length * columns);
  const float* const from = dy.data<float>();
  parallel_ranges(context, length * columns, elements_per_thread,
                  [&](std::int64_t first, std::int64_t last) {
                    const auto size = static_cast<std::size_t>(last - first);
                    for (std::int64_t n = 0; n < sequences; ++n) {
                      const float* part = from + n * length * columns + first;
                      if (n == 0 && !adds) {
                        std::copy_n(part, size, sums + first);
                      } else {
                        add_in_place({sums + first, size}, {part, size});
                      }
                    }
                  });
}

}  // namespace dtrain::ops
