// Philox4x32-10: counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011). There is no generator state: a number is a function of what it is for, so it
// depends on no thread, worker or rank.
//
//   RandomKey key = RandomKey(seed).fork(RandomPurpose::dropout, layer).fork(call, batch);
//   std::array<std::uint32_t, 4> bits = key.block(position_in_batch, element / 4);
#pragma once

#include <array>
#include <cstdint>

namespace dtrain {

// The ten-round bijection: counter and key to four random words.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

// What a stream of numbers is for; separates streams that would otherwise share a key.
enum class RandomPurpose : std::uint64_t {
  weights = 1,
  shuffle,
  transform,
  dropout,
  glyph,
  synthetic,
  sampling
};

class RandomKey {
 public:
  explicit RandomKey(std::uint64_t seed) : bits_(seed) {}

  // The key of a sub-stream, a hash of (key, a, b). fork(a, b) and fork(a).fork(b) differ.
  RandomKey fork(std::uint64_t a, std::uint64_t b = 0) const;
  RandomKey fork(RandomPurpose purpose, std::uint64_t b = 0) const {
    return fork(static_cast<std::uint64_t>(purpose), b);
  }

  // 128 random bits at counter (hi, lo).
  std::array<std::uint32_t, 4> block(std::uint64_t hi, std::uint64_t lo) const;

  std::uint64_t bits() const { return bits_; }

 private:
  std::uint64_t bits_;
};

// Draws one number after the other from a key: for code that needs many of several kinds.
class RandomSequence {
 public:
  // Begins with the words of key.block(stream, first_block).
  explicit RandomSequence(RandomKey key, std::uint64_t stream = 0, std::uint64_t first_block = 0)
      : key_(key), stream_(stream), counter_(first_block) {}

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  float uniform();                          // [0, 1), 24 bits
  double uniform_double();                  // [0, 1), 53 bits
  double uniform(double low, double high);  // [low, high)
  double normal();                          // mean 0, variance 1 (Box-Muller); takes four words
  std::uint64_t below(std::uint64_t n);     // [0, n), without bias; n >= 1

 private:
  RandomKey key_;
  std::uint64_t stream_;
  std::uint64_t counter_;
  std::array<std::uint32_t, 4> words_{};
  int used_ = 4;
};

// 24 random bits of a word as a float in [0, 1).
inline float unit_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace dtrain
