#include "dtrain/core/config/scalars.h"

#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

TEST(Scalars, EverySpellingOfAThousandthIsTheSameNumber) {
  for (const char* text : {"1e-3", "1E-3", "1.e-3", "1.0e-3", "0.001", "+1e-3", ".001"}) {
    const Config config = read("optimizer: {lr: " + std::string(text) + "}\n");
    EXPECT_EQ(config.values.optimizer().lr(), 0.001) << text;
    EXPECT_NE(to_yaml(config, known_kinds()).find("\n  lr: 0.001  #"), std::string::npos) << text;
  }
}

TEST(Scalars, WhatIsNoNumberSaysSoWithItsPlace) {
  EXPECT_EQ(problem("optimizer:\n  lr: 1e-3x\n"),
            "c.yaml:2:7: optimizer.lr: expected a number, found '1e-3x'");
  EXPECT_EQ(problem("optimizer:\n  lr: 0.1f\n"),
            "c.yaml:2:7: optimizer.lr: expected a number, found '0.1f'");
  EXPECT_EQ(problem("optimizer:\n  lr: 1,5\n"),
            "c.yaml:2:7: optimizer.lr: expected a number, found '1,5': write a point, not a comma, "
            "before the fraction, and nothing between thousands");
  EXPECT_EQ(problem("optimizer:\n  lr: abc\n"),
            "c.yaml:2:7: optimizer.lr: expected a number, found 'abc'");
}

TEST(Scalars, QuotesMakeText) {
  EXPECT_EQ(problem("optimizer:\n  lr: \"1e-3\"\n"),
            "c.yaml:2:7: optimizer.lr: expected a number, found the text '1e-3' in quotes; write "
            "it without quotes");
  EXPECT_EQ(problem("train: {epochs: '3'}\n"),
            "c.yaml:1:17: train.epochs: expected a whole number, found the text '3' in quotes; "
            "write it without quotes");
  EXPECT_EQ(problem("data: {train: {kind: glyphs}, shuffle: \"false\"}\n"),
            "c.yaml:1:40: data.shuffle: expected true or false, found the text 'false' in quotes; "
            "write it without quotes");
  EXPECT_EQ(read("output: \"2024\"\n")
                .values.output()
                .substr(read("output: \"2024\"\n").values.output().size() - 5),
            "/2024");
}

TEST(Scalars, AmbiguousNumbersAreRefusedAndSayWhy) {
  EXPECT_EQ(problem("seed: 010\n"),
            "c.yaml:1:7: seed: expected a whole number, found '010': a leading zero is ambiguous: "
            "some readers of YAML take it as octal; write 10");
  EXPECT_EQ(problem("seed: 000\n"),
            "c.yaml:1:7: seed: expected a whole number, found '000': a leading zero is ambiguous: "
            "some readers of YAML take it as octal; write 0");
  EXPECT_NE(problem("train: {max_time: 1:30}\n").find("base 60"), std::string::npos);
  EXPECT_NE(problem("seed: 0x1F\n").find("not hexadecimal"), std::string::npos);
  EXPECT_NE(problem("seed: 0o17\n").find("not octal"), std::string::npos);
  EXPECT_NE(problem("seed: 1_000\n").find("leave the underscores out"), std::string::npos);
  EXPECT_EQ(config_internal::parse_integer("0").value, 0);
  EXPECT_EQ(config_internal::parse_real("0.5").value, 0.5);
}

TEST(Scalars, NumbersAreFinite) {
  for (const char* text : {".inf", "-.inf", ".nan", "nan", "inf", "-Inf", "Infinity"}) {
    EXPECT_NE(problem("optimizer: {lr: " + std::string(text) + "}\n").find("must be finite"),
              std::string::npos)
        << text;
  }
  for (const char* text : {"1e999", "-1e999", "1e-999"}) {
    EXPECT_FALSE(config_internal::parse_real(text).error.empty()) << text;
  }
}

TEST(Scalars, IntegersAreNeverTruncated) {
  EXPECT_EQ(problem("train: {epochs: 2.5}\n"),
            "c.yaml:1:17: train.epochs: expected a whole number, found '2.5'");
  EXPECT_EQ(read("train: {steps: 1e3}\n").values.train().steps(), 1000);
  EXPECT_EQ(read("seed: 18446744073709551615\n").values.seed(), 18446744073709551615ULL);
  EXPECT_EQ(problem("seed: 18446744073709551616\n"),
            "c.yaml:1:7: seed: expected a whole number from 0 to 18446744073709551615, found "
            "'18446744073709551616'");
  EXPECT_EQ(problem("seed: -1\n"),
            "c.yaml:1:7: seed: expected a whole number from 0 to 18446744073709551615, found '-1'");
  // 2^53 + 1 is no double, so an exponent cannot say it.
  EXPECT_FALSE(config_internal::parse_integer("9007199254740993e0").error.empty() &&
               config_internal::parse_integer("9007199254740993e0").value == 9007199254740993);
  EXPECT_EQ(config_internal::parse_integer("-9223372036854775808").value, INT64_MIN);
  EXPECT_FALSE(config_internal::parse_integer("9223372036854775808").error.empty());
  EXPECT_FALSE(config_internal::parse_integer("1e19").error.empty());
}

TEST(Scalars, RangesAreChecked) {
  EXPECT_EQ(problem("batch: {global: 3000000000000, micro: 8}\n"),
            "c.yaml:1:17: batch.global: must be from 1 to 2147483647, found "
            "'3000000000000'");
  EXPECT_EQ(problem("batch: {global: 0, micro: 8}\n"),
            "c.yaml:1:17: batch.global: must be at least 1, found '0'");
  EXPECT_EQ(problem("data: {train: {kind: glyphs}, workers: -1}\n"),
            "c.yaml:1:40: data.workers: must be from 0 to 256, found '-1'");
  EXPECT_EQ(problem("data: {train: {kind: glyphs}, timeout: 0}\n"),
            "c.yaml:1:40: data.timeout: must be more than 0, found '0'");
}

TEST(Scalars, OnlyTrueAndFalseAreFlags) {
  for (const char* text : {"yes", "no", "on", "off", "1", "0", "y"}) {
    EXPECT_EQ(
        problem("init: {strict: " + std::string(text) + "}\n"),
        "c.yaml:1:16: init.strict: expected true or false, found '" + std::string(text) + "'");
  }
  EXPECT_FALSE(read("init: {strict: False}\n").values.init().strict());
}

TEST(Scalars, AutoIsAWordOfSomeKeys) {
  EXPECT_EQ(read("parallel: {cores: auto}\n").values.parallel().cores(), 0);
  EXPECT_EQ(problem("parallel: {cores: 0}\n"),
            "c.yaml:1:19: parallel.cores: must be from 1 to 4096, found '0' (or auto)");
  EXPECT_EQ(problem("seed: auto\n"), "c.yaml:1:7: seed: expected a whole number, found 'auto'");
}

TEST(Scalars, AmountsAreSamplesOrShares) {
  const auto train = [](const std::string& keys) {
    return "data: {train: {kind: glyphs, " + keys + "}}\n";
  };
  const Config config = read(train("size: 90%, offset: 10"));
  EXPECT_EQ(config.values.data().train().size().percent(), 90);
  EXPECT_FALSE(config.values.data().train().size().has_samples());
  EXPECT_EQ(config.values.data().train().offset().samples(), 10);
  EXPECT_EQ(read(train("size: \"12.5%\"")).values.data().train().size().percent(), 12.5);
  EXPECT_EQ(problem(train("size: 101%")),
            "c.yaml:1:36: data.train.size: expected a share of more than 0% and at most 100%, "
            "found '101%'");
  EXPECT_NE(problem(train("offset: 100%")).find("less than 100%"), std::string::npos);
  EXPECT_NE(problem(train("size: 0")).find("must be at least 1"), std::string::npos);
  EXPECT_NE(problem(train("size: 0.5")).find("(or a share such as 90%)"), std::string::npos);
  EXPECT_NE(problem(train("size: 60%, offset: 50%")).find("60% + 50%"), std::string::npos);
}

}  // namespace
}  // namespace dtrain::testing
