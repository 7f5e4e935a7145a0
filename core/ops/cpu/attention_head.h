// What the attention kernels work on: one head of one sequence.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::ops {

// Note [Tiles of attention]: scores are computed for 64 queries and 64 keys at a time. Keys and
// values are packed once per head into tiles, padded with zeros to whole vectors of any instruction
// set, so products have no tails; what is padding gets probability zero.
inline constexpr std::size_t attention_tile = 64;
inline constexpr std::size_t attention_pad = 16;

struct Rows {
  float* data;
  std::size_t stride;  // elements from row to row
};
struct ConstRows {
  const float* data;
  std::size_t stride;
};

struct AttentionHead {
  std::size_t queries;
  std::size_t keys;
  std::size_t size;  // D
  float scale;       // of scores
  bool causal;
  const std::uint8_t* key_mask;  // [keys], or null
  ConstRows q, k, v;
  float dropout;
  std::uint64_t random_key;
  std::uint64_t position;    // of the sample in the global batch
  std::uint64_t first_word;  // of the head's first query

  std::size_t padded_size() const {
    return (size + attention_pad - 1) / attention_pad * attention_pad;
  }
  std::size_t tiles() const { return (keys + attention_tile - 1) / attention_tile; }
  std::size_t words_per_query() const { return (keys + 3) / 4 * 4; }
  // Floats of scratch memory.
  std::size_t forward_scratch() const {
    return tiles() * attention_tile * (size + padded_size()) +
           attention_tile * (attention_tile + padded_size());
  }
  std::size_t backward_scratch() const {
    return tiles() * attention_tile * (2 * size + 3 * padded_size()) +
           attention_tile * (2 * attention_tile + 3 * padded_size());
  }
};

struct AttentionForward {
  Rows y;
  float* log_sums;  // [queries]
};

struct AttentionBackward {
  ConstRows y, dy;
  const float* log_sums;
  Rows dq, dk, dv;
};

}  // namespace dtrain::ops
