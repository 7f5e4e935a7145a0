// XXH3-128 digests: of weights, files, bucket plans and configurations. Not cryptographic.
//
//   Hasher hasher;
//   hasher.add("fc1.weight");
//   hasher.add(std::as_bytes(weights));
//   std::string digest = hasher.hex();   // 32 lower-case hex digits
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace dtrain {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void add(std::span<const std::byte> bytes);
  // Text is preceded by its length, so that "ab","c" and "a","bc" differ.
  void add(std::string_view text);
  template <typename T>
  requires std::is_arithmetic_v<T>
  void add(T value) { add(std::as_bytes(std::span(&value, 1))); }
  // Digest of what was added so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 64 bits of the text's digest: a stable number for a name.
std::uint64_t hash64(std::string_view text);

std::string hash_hex(std::span<const std::byte> bytes);

}  // namespace dtrain
