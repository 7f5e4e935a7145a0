// Traps of YAML as a text format, and files that are none.
#include <fstream>

#include <fmt/format.h>

#include "dtrain/core/base/files.h"
#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

std::string only(const std::string& yaml) {
  const std::vector<std::string> all = problems_of_text(yaml);
  EXPECT_EQ(all.size(), 1U) << ::testing::PrintToString(all);
  return all.empty() ? "" : all.front();
}

TEST(YamlText, TabsAsIndentation) {
  EXPECT_EQ(only("seed: 1\ntrain:\n  steps: 3\n\tepochs: 1\n"),
            "c.yaml:4:1: line 4: tab used for indentation, use spaces");
  EXPECT_EQ(only("train:\n  \tsteps: 3\n"),
            "c.yaml:2:3: line 2: tab used for indentation, use spaces");
  EXPECT_EQ(problems("seed: 1\t# after a value a tab is no indentation\n\t\n\t# nor here\n"),
            std::vector<std::string>());
}

TEST(YamlText, WrongIndentation) {
  EXPECT_EQ(only("seed: 1\nlog: {}\ntrain:\n  steps: 3\n   clip_norm: 1\n"),
            "c.yaml:5:13: a ':' where no value can stand: check the indentation of this line, or "
            "put text that holds ': ' in quotes");
  EXPECT_EQ(only("train:\n    steps: 3\n  clip_norm: 1\n"),
            "c.yaml:3:3: this line does not fit what stands before it: check its indentation");
}

TEST(YamlText, ByteOrderMarkAndCarriageReturnsAreFine) {
  const Config config = read(
      "\xEF\xBB\xBFseed: 7\r\nmodel: {name: convnet}\r\ndata:\r\n  train: {kind: glyphs}\r\n"
      "batch: {global: 8, micro: 8}\r\n");
  EXPECT_EQ(config.values.seed(), 7U);
  EXPECT_EQ(config.origins.at("seed"), "c.yaml:1");
  EXPECT_EQ(config.origins.at("batch.global"), "c.yaml:5");
  EXPECT_EQ(problem("\xEF\xBB\xBFseed: x\r\n").find("c.yaml:1:7: seed: "), 0U);
}

TEST(YamlText, OneDocumentOnly) {
  EXPECT_EQ(only("seed: 1\n---\nseed: 2\n"),
            "c.yaml:2:1: a second document begins here; a recipe is one document");
  EXPECT_EQ(only("seed: 1\n...\nlr: 2\n"),
            "c.yaml:3:1: a second document begins here; a recipe is one document");
  EXPECT_EQ(problems("---\nseed: 1\n"), std::vector<std::string>());
}

TEST(YamlText, MergeKeysAndTagsAreErrors) {
  EXPECT_EQ(problem("optimizer: &o {lr: 1}\ndata:\n  train: {kind: glyphs}\n  <<: *o\n"),
            "c.yaml:4:3: data.<<: merge keys (<<) are not supported; write the keys out in each "
            "section");
  EXPECT_NE(only("seed: !!int \"3\"\n").find("tag 'tag:yaml.org,2002:int' is not supported"),
            std::string::npos);
}

TEST(YamlText, AliasesAreCopies) {
  const Config config = read("data:\n  train: &t {kind: glyphs, size: 10}\n  validation: *t\n");
  EXPECT_EQ(config.values.data().validation().size().samples(), 10);
  EXPECT_NE(only("a: &x [*x]\n").find("inside the value that it refers to"), std::string::npos);
  EXPECT_NE(only("seed: *nope\n").find("c.yaml:1:7: alias (*) of an anchor (&)"),
            std::string::npos);
}

TEST(YamlText, AliasBombsAndDeepNestingAreBounded) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    bomb +=
        fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i, i - 1);
  }
  EXPECT_NE(only(bomb).find("more than 50000 values"), std::string::npos);

  std::string chain = "a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i) chain += fmt::format("a{0}: &a{0} [*a{1}]\n", i, i - 1);
  EXPECT_NE(only(chain).find("nested deeper than"), std::string::npos);
  EXPECT_NE(only(std::string(100000, '[')).find("nested deeper than"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 2000; ++i) blocks += fmt::format("{:{}}a:\n", "", i);
  EXPECT_NE(only(blocks).find("nested deeper than"), std::string::npos);
}

TEST(YamlText, UnclosedQuotesAndBrackets) {
  EXPECT_EQ(only("output: \"abc\nseed: 1\n"),
            "c.yaml:1:9: the quote that begins here is never closed");
  EXPECT_EQ(only("output: 'it''s\n"), "c.yaml:1:9: the quote that begins here is never closed");
  EXPECT_NE(only("output: &x 'abc\n").find("never closed"), std::string::npos);
  EXPECT_NE(only("a: [1, 2\nb: 3\n").find("lacks its ']'"), std::string::npos);
  EXPECT_NE(only("a: {b: 1\nc: 2\n").find("lacks its '}'"), std::string::npos);
  EXPECT_NE(only("seed: 1\n]\n").find("c.yaml:2:1: a ']' or '}' that nothing opened"),
            std::string::npos);
}

TEST(YamlText, WhatIsNoUtf8Text) {
  EXPECT_EQ(only(std::string("\xFF\xFEs\0e\0", 6)),
            "c.yaml: the text is UTF-16 or UTF-32; save it as UTF-8");
  EXPECT_EQ(only(std::string("\0s\0e", 4)),
            "c.yaml: the text is UTF-16 or UTF-32; save it as UTF-8");
  EXPECT_EQ(only("seed: 1\noutput: caf\xE9\n"),
            "c.yaml:2:12: byte 0xe9 is not UTF-8; save the file as UTF-8");
  // yaml-cpp takes 0x04 for the end of the text.
  EXPECT_EQ(only("seed: 1\n\x04lr: 1\n"),
            "c.yaml:2:1: control character 0x04; is this a text file?");
}

TEST(YamlText, WhatIsNoRecipe) {
  EXPECT_EQ(only(""), "c.yaml: the recipe is empty");
  EXPECT_EQ(only("# nothing\n"), "c.yaml: the recipe is empty");
  EXPECT_EQ(only("hello\n"), "c.yaml:1:1: expected a recipe of 'key: value' lines, found 'hello'");
  EXPECT_EQ(only("- a\n"), "c.yaml:1:1: expected a recipe of 'key: value' lines, found a list");
}

TEST(YamlText, FilesThatCannotBeReadNameTheirPath) {
  const TemporaryDirectory folder;
  const auto error = [&](const std::filesystem::path& path) -> std::string {
    try {
      load_config(path, {}, known_kinds());
    } catch (const ConfigError& failure) {
      return failure.what();
    }
    return "";
  };
  const std::string base = folder.path().string();
  EXPECT_EQ(error(folder.path()), base + ": is a folder; give the YAML file in it");
  EXPECT_EQ(error(folder.path() / "no.yaml"),
            base + "/no.yaml: cannot be read: No such file or directory (ENOENT)");
  std::ofstream(folder.path() / "empty.yaml").close();
  EXPECT_EQ(error(folder.path() / "empty.yaml"), base + "/empty.yaml: the file is empty");
  EXPECT_EQ(error("/dev/null"), "/dev/null: is not a regular file");
  std::ofstream(folder.path() / "large.yaml") << std::string((1 << 20) + 1, '#');
  EXPECT_EQ(error(folder.path() / "large.yaml"),
            base + "/large.yaml: is larger than 1 MiB, which no recipe is");
}

TEST(YamlText, AFileIsReadFromItsFolder) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / "digits.v2.yaml")
      << "model: {name: convnet}\nbatch: {global: 8, micro: 4}\n"
         "data: {train: {kind: mnist, images: a/../i.gz, labels: /l.gz}}\n";
  const Config config = load_config(folder.path() / "digits.v2.yaml", {}, known_kinds());
  const auto mnist = unpack<config::Mnist>(config.values.data().train().options());
  EXPECT_EQ(mnist.images(), (folder.path() / "i.gz").string());
  EXPECT_EQ(mnist.labels(), "/l.gz");
  EXPECT_EQ(config.name, "digits.v2");
  EXPECT_EQ(config.values.output(), (std::filesystem::current_path() / "runs/digits.v2").string());
}

}  // namespace
}  // namespace dtrain::testing
