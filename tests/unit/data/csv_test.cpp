// Tables: how text becomes samples, and what is said about text that cannot.
#include "dtrain/data/csv.h"

#include "dtrain/data/csv_reader.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

using Fields = std::vector<std::string>;

class CsvTest : public DataFiles {
 protected:
  std::vector<Fields> split(std::string_view text, char separator = ',') const {
    const InputFile file(write("t.csv", text));
    CsvReader reader(file, separator);
    std::vector<Fields> records;
    while (reader.next()) records.emplace_back(reader.fields().begin(), reader.fields().end());
    return records;
  }
  config::Csv options(std::string_view text, const Fields& features, const Fields& targets) const {
    config::Csv result;
    result.set_path(write("t.csv", text));
    for (const std::string& name : features) result.add_features(name);
    for (const std::string& name : targets) result.add_targets(name);
    return result;
  }
  Csv table(std::string_view text) const { return Csv(options(text, {"x"}, {"t"})); }
  // The error of that table of columns x and t, without its path.
  std::string refusal(std::string_view text) const {
    const std::string error = error_text([&] {
      const Csv data = table(text);
      data.check(0, data.size());
    });
    EXPECT_TRUE(error.starts_with(path("t.csv") + ": ")) << error;
    return error.substr(std::min(path("t.csv").size() + 2, error.size()));
  }
};

TEST_F(CsvTest, SplitsLinesOfEveryKind) {
  const std::vector<Fields> expected{{"a", "b"}, {"1", "2"}, {"3", ""}};
  EXPECT_EQ(split("a,b\n1,2\n3,\n"), expected);
  EXPECT_EQ(split("a,b\r\n1,2\r\n3,"), expected);
  EXPECT_EQ(split("a,b\r1,2\r3,\r"), expected);
  EXPECT_EQ(split("\xEF\xBB\xBF"
                  "a,b\n\n1,2\n\r\n3,\n\n"),
            expected);
  EXPECT_EQ(split("a\tb\n1\t2\n3\t", '\t'), expected);
  EXPECT_EQ(split(""), std::vector<Fields>{});
  EXPECT_EQ(split("\n\r\n"), std::vector<Fields>{});
}

TEST_F(CsvTest, QuotesHideSeparatorsAndLineBreaks) {
  EXPECT_EQ(split("\"a,b\",\"say \"\"hi\"\"\"\n\"two\nlines\",\"\"\n"),
            (std::vector<Fields>{{"a,b", "say \"hi\""}, {"two\nlines", ""}}));
  EXPECT_EQ(split("\"\"\n"), (std::vector<Fields>{{""}}));
  EXPECT_EQ(split("5\" disk,b\n"), (std::vector<Fields>{{"5\" disk", "b"}}));
}

TEST_F(CsvTest, LongTextsAreReadPieceByPiece) {
  std::string text = "x,t\n";
  for (int i = 0; i < 40'000; ++i) text += fmt::format("{},\"{}\"\r\n", i, 2 * i);
  const Csv data = table(text);
  ASSERT_EQ(data.size(), 40'000);
  EXPECT_EQ(read_sample(data, 39'999), (Sample{{39'999}, {79'998}, 0}));
}

TEST_F(CsvTest, TakesTheNamedColumnsInTheirOrder) {
  const Csv data(options("t, y ,unused,\"x\"\n1,2,word,3\n-1e3,+.5, ,  7 \n", {"x", "y"}, {"t"}));
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(data.spec().input.shape, Shape{2});
  EXPECT_EQ(data.spec().target.shape, Shape{1});
  EXPECT_EQ(data.spec().target.dtype, DType::f32);
  EXPECT_EQ(data.spec().classes, 0);
  EXPECT_EQ(read_sample(data, 0), (Sample{{3, 2}, {1}, 0}));
  EXPECT_EQ(read_sample(data, 1), (Sample{{7, 0.5f}, {-1000}, 0}));
  EXPECT_EQ(data.origin(1), path("t.csv") + ": row 1");
}

TEST_F(CsvTest, ClassesAreLabels) {
  config::Csv keys = options("x,t\n1,2\n2,0\n3,5.0\n", {"x"}, {"t"});
  keys.set_classes(true);
  const Csv data(keys);
  EXPECT_EQ(data.spec().target.dtype, DType::i64);
  EXPECT_EQ(data.spec().target.shape, Shape{});
  EXPECT_EQ(data.spec().classes, 6);
  EXPECT_EQ(read_sample(data, 2).label, 5);
}

TEST_F(CsvTest, ClassesMustBeNaturalNumbers) {
  for (const std::string wrong : {"-1", "1.5", "16777216"}) {
    config::Csv keys = options("x,t\n1,2\n2," + wrong + "\n", {"x"}, {"t"});
    keys.set_classes(true);
    const Csv data(keys);
    EXPECT_EQ(error_text([&] { data.check(0, 2); }),
              fmt::format("{}: record 1: line 3: column 't': '{}' is not a class number (0 to "
                          "16777215)",
                          path("t.csv"), wrong));
  }
}

TEST_F(CsvTest, BadValuesAreNamedWithRowLineAndColumn) {
  EXPECT_EQ(refusal("x,t\n1,2\n\nabc,3\n"), "record 1: line 4: column 'x': 'abc' is not a number");
  EXPECT_EQ(refusal("x,t\n1,2 3\n"), "record 0: line 2: column 't': '2 3' is not a number");
  EXPECT_EQ(refusal("x,t\n1,0x10\n"), "record 0: line 2: column 't': '0x10' is not a number");
  EXPECT_EQ(refusal("x,t\n1,+-1\n"), "record 0: line 2: column 't': '+-1' is not a number");
  EXPECT_EQ(refusal("x,t\n1, \n"), "record 0: line 2: column 't': no value");
  EXPECT_EQ(refusal("x,t\nnan,1\n"), "record 0: line 2: column 'x': 'nan' is not finite");
  EXPECT_EQ(refusal("x,t\n-inf,1\n"), "record 0: line 2: column 'x': '-inf' is not finite");
  EXPECT_EQ(refusal("x,t\n1e39,1\n"),
            "record 0: line 2: column 'x': '1e39' is out of the range of 32-bit floats");
  EXPECT_EQ(refusal("x,t\n1\n"), "record 0: line 2: 1 fields, but the header has 2");
  EXPECT_EQ(refusal("x,t\n1,2,3\n"), "record 0: line 2: 3 fields, but the header has 2");
}

// A number too small for a float is nothing, as everywhere else.
TEST_F(CsvTest, TinyNumbersAreZero) {
  EXPECT_EQ(read_sample(table("x,t\n1e-60,1\n"), 0).input[0], 0.0f);
}

TEST_F(CsvTest, BadRowsKeepTheirPlaceAndMayBeSkipped) {
  const Csv data = table("x,t\n1,1\nbad,2\n3,3\n");
  EXPECT_EQ(data.size(), 3);
  EXPECT_EQ(read_sample(data, 2), (Sample{{3}, {3}, 0}));
  EXPECT_THROW(read_sample(data, 1), DataError);
  EXPECT_NO_THROW(data.check(2, 3));
}

TEST_F(CsvTest, FilesThatAreNoTableAreRefusedAtOnce) {
  EXPECT_EQ(refusal(""), "file is empty");
  EXPECT_EQ(refusal("\n\n"), "has no header line");
  EXPECT_EQ(refusal("x,t\n"), "has a header line, but no data");
  EXPECT_EQ(refusal("x,t\n1,\"2\n3,4\n"), "line 2: a quote is not closed");
  EXPECT_EQ(refusal("x,t\n1,\"2\"3\n"), "line 2: field 2 goes on behind its closing quote");
  EXPECT_EQ(refusal(std::string("x,t\n1,\0", 7)), "line 2: a NUL byte; is this a text file?");
  EXPECT_EQ(refusal("\xFF\xFEx"), "is UTF-16, not UTF-8");
  EXPECT_EQ(refusal(gzip("x,t\n1,2\n")), "is gzip; unpack it first");
  EXPECT_EQ(refusal("x,t\n1,\"" + std::string(2'000'000, '1')),
            "line 2: field 2 is longer than 1048576 bytes; is a quote not closed?");
}

TEST_F(CsvTest, AMissingColumnNamesTheNearest) {
  EXPECT_EQ(error_text([&] { Csv(options("height,weight\n1,2\n", {"heigth"}, {"weight"})); }),
            path("t.csv") +
                ": no column 'heigth'; did you mean 'height'? the header has height, "
                "weight");
  EXPECT_EQ(error_text([&] { Csv(options("x,t,x\n1,2,3\n", {"x"}, {"t"})); }),
            path("t.csv") + ": two columns are called 'x'");
}

TEST_F(CsvTest, KeysMustFitEachOther) {
  EXPECT_EQ(error_text<ConfigError>([&] { Csv(options("x\n1\n", {}, {"x"})); }),
            "csv.features: names no column");
  config::Csv two = options("x,t,u\n1,2,3\n", {"x"}, {"t", "u"});
  two.set_classes(true);
  EXPECT_EQ(error_text<ConfigError>([&] { Csv{two}; }),
            "csv.classes: needs one target column, not 2");
  config::Csv separator = options("x,t\n1,2\n", {"x"}, {"t"});
  separator.set_separator(", ");
  EXPECT_EQ(error_text<ConfigError>([&] { Csv{separator}; }),
            "csv.separator: ', ' is not one character (and neither quote nor line break)");
}

TEST_F(CsvTest, IdentityIsThatOfTheValues) {
  const std::string before = table("x,t\n1,2\n3,4\n").identity();
  EXPECT_EQ(table("x,t\r\n\"1\",2.0\r\n3,4").identity(), before);
  EXPECT_NE(table("x,t\n1,2\n3,5\n").identity(), before);
  EXPECT_NE(table("x,t\n1,2\n").identity(), before);
}

}  // namespace
}  // namespace dtrain::test
