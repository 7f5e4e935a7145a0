#include "dtrain/core/random/philox.h"

#include <cmath>
#include <numbers>

namespace dtrain {

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

namespace {

constexpr std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
constexpr std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

}  // namespace

std::array<std::uint32_t, 4> RandomKey::block(std::uint64_t hi, std::uint64_t lo) const {
  return philox4x32_10({low(lo), high(lo), low(hi), high(hi)}, {low(bits_), high(bits_)});
}

RandomKey RandomKey::fork(std::uint64_t a, std::uint64_t b) const {
  // The bijection maps different (a, b) to different 128 bits; half of them make the key, so two
  // sub-streams collide with the probability of any 64-bit hash. The complemented key keeps forks
  // apart from the numbers that block(a, b) gives out.
  const auto words = philox4x32_10({low(b), high(b), low(a), high(a)}, {~low(bits_), ~high(bits_)});
  return RandomKey(std::uint64_t{words[1]} << 32 | words[0]);
}

std::uint32_t RandomSequence::next_u32() {
  if (used_ == 4) {
    words_ = key_.block(stream_, counter_++);
    used_ = 0;
  }
  return words_[used_++];
}

std::uint64_t RandomSequence::next_u64() {
  const std::uint64_t first = next_u32();
  return std::uint64_t{next_u32()} << 32 | first;
}

float RandomSequence::uniform() {
  return unit_float(next_u32());
}

double RandomSequence::uniform_double() {
  return static_cast<double>(next_u64() >> 11) * 0x1p-53;
}

double RandomSequence::uniform(double from, double to) {
  return from + (to - from) * uniform_double();
}

double RandomSequence::normal() {
  const double u = 1.0 - uniform_double();  // (0, 1]: the logarithm stays finite
  const double v = uniform_double();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

std::uint64_t RandomSequence::below(std::uint64_t n) {
  // Rejects the incomplete last run of n among 2^64 values.
  const std::uint64_t limit = -n % n;
  while (true) {
    const std::uint64_t value = next_u64();
    if (value >= limit) return value % n;
  }
}

}  // namespace dtrain
