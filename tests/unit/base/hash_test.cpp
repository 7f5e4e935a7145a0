#include "dtrain/core/base/hash.h"

#include <vector>

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(Hash, KnownValues) {
  // XXH3-128 with seed 0, as `xxhsum -H128` prints it.
  EXPECT_EQ(hash_hex({}), "99aa06d3014798d86001c324468d497f");
  const std::string abc = "abc";
  EXPECT_EQ(hash_hex(std::as_bytes(std::span(abc))), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, PiecesOfBytesMakeTheWhole) {
  std::vector<std::byte> bytes(10'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 31);
  Hasher hasher;
  for (std::size_t i = 0; i < bytes.size(); i += 1000) {
    hasher.add(std::span<const std::byte>(bytes).subspan(i, 1000));
  }
  EXPECT_EQ(hasher.hex(), hash_hex(bytes));
  EXPECT_EQ(hasher.hex(), hasher.hex());  // asking changes nothing
}

TEST(Hash, TextsDoNotRunTogether) {
  Hasher a, b;
  a.add("ab");
  a.add("c");
  b.add("a");
  b.add("bc");
  EXPECT_NE(a.hex(), b.hex());
}

TEST(Hash, NumbersCountByTypeAndValue) {
  const auto of = [](auto value) {
    Hasher hasher;
    hasher.add(value);
    return hasher.hex();
  };
  EXPECT_EQ(of(1), of(1));
  EXPECT_NE(of(1), of(2));
  EXPECT_NE(of(1), of(std::int64_t{1}));
  EXPECT_NE(of(0.0), of(-0.0));
}

TEST(Hash, Moves) {
  Hasher a;
  a.add("x");
  const std::string digest = a.hex();
  Hasher b(std::move(a));
  EXPECT_EQ(b.hex(), digest);
}

}  // namespace
}  // namespace dtrain
