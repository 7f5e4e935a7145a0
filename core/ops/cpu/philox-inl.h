// Random words of RandomKey, many at a time. Highway includes this once per target.

// clang-format off
#if defined(DTRAIN_CORE_OPS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DTRAIN_CORE_OPS_CPU_PHILOX_INL_H_
#undef DTRAIN_CORE_OPS_CPU_PHILOX_INL_H_
#else
#define DTRAIN_CORE_OPS_CPU_PHILOX_INL_H_
#endif
// clang-format on

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The words of RandomKey::block(hi, lo) for lo = first, first + 1, ...: four of each. `words` has
// room for `blocks` rounded up to whole vectors.
//
// A 64-bit lane works on one block and holds one 32-bit word of its counter; the upper halves hold
// rubbish that the even-lane product ignores.
HWY_INLINE void philox_words(std::uint64_t key, std::uint64_t hi, std::uint64_t first,
                             std::size_t blocks, std::uint32_t* words) {
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  const std::size_t lanes = hn::Lanes(d);
  const auto multiplier0 = hn::Set(d32, 0xD2511F53u);
  const auto multiplier1 = hn::Set(d32, 0xCD9E8D57u);
  const auto low_half = hn::Set(d, std::uint64_t{0xFFFFFFFF});
  for (std::size_t i = 0; i < blocks; i += lanes) {
    auto c0 = hn::Add(hn::Iota(d, 0), hn::Set(d, first + i));
    auto c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Set(d, hi);
    auto c3 = hn::ShiftRight<32>(c2);
    std::uint32_t key0 = static_cast<std::uint32_t>(key);
    std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto product0 = hn::MulEven(hn::BitCast(d32, c0), multiplier0);
      const auto product1 = hn::MulEven(hn::BitCast(d32, c2), multiplier1);
      c0 = hn::Xor(hn::ShiftRight<32>(product1), hn::Xor(c1, hn::Set(d, key0)));
      c2 = hn::Xor(hn::ShiftRight<32>(product0), hn::Xor(c3, hn::Set(d, key1)));
      c1 = product1;
      c3 = product0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const auto words01 = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
    const auto words23 = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(words01, words23, d, reinterpret_cast<std::uint64_t*>(words + 4 * i));
  }
}

}  // namespace dtrain::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DTRAIN_CORE_OPS_CPU_PHILOX_INL_H_
