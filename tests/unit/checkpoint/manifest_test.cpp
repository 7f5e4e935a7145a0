#include "dtrain/core/checkpoint/manifest.h"

#include "checkpoint_testing.h"

namespace dtrain {
namespace {

const std::string digest_a(32, 'a');
const std::string digest_0(32, '0');

Manifest example() {
  return {{"model.safetensors", {1234, digest_a}}, {"state.pb", {0, digest_0}}};
}

std::string error_of(const std::string& text) {
  return checkpoint_error_of([&] { parse_manifest(text, "M"); });
}

// A manifest whose last line is right for `lines`.
std::string sealed(const std::string& lines) {
  return lines +
         fmt::format("MANIFEST {} {}\n", lines.size(), hash_hex(std::as_bytes(std::span(lines))));
}

TEST(Manifest, TextIsThisAndComesBack) {
  const std::string lines =
      "model.safetensors 1234 " + digest_a + "\nstate.pb 0 " + digest_0 + "\n";
  EXPECT_EQ(to_text(example()), sealed(lines));
  EXPECT_EQ(parse_manifest(sealed(lines), "M"), example());
}

TEST(Manifest, EveryCutIsSeen) {
  const std::string text = to_text(example());
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(error_of(text.substr(0, length)), "") << length;
  }
  EXPECT_EQ(error_of(""), "M: cut after line 0: its last line is missing");
  EXPECT_EQ(error_of(text.substr(0, text.find('\n') + 1)),
            "M: cut after line 1: its last line is missing");
  EXPECT_EQ(error_of(text.substr(0, text.size() - 1)), "M: cut in line 3");
}

TEST(Manifest, EveryChangedByteIsSeen) {
  const std::string text = to_text(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_NE(error_of(changed), "") << i;
  }
}

TEST(Manifest, Malformed) {
  EXPECT_EQ(error_of(to_text(example()) + "x 1 " + digest_a + "\n"),
            "M: text after its last line, 3");
  for (const std::string& line :
       std::vector<std::string>{"x", "x 1", "x one " + digest_a, "x -1 " + digest_a, "x 1 abc",
                                "x 1 " + std::string(32, 'A'), "x 99999999999999999999 " + digest_a,
                                "../x 1 " + digest_a, "/etc/passwd 1 " + digest_a,
                                ". 1 " + digest_a, " 1 " + digest_a}) {
    EXPECT_EQ(error_of(sealed(line + "\n")), "M: line 1 is not 'name size digest'") << line;
  }
  const std::string line = "x 1 " + digest_a + "\n";
  EXPECT_EQ(error_of(sealed(line + line)), "M: line 2: x stands twice");
}

}  // namespace
}  // namespace dtrain
