// Windows over bytes and token ids: what a sample holds, how shares are cut, and what is said about
// files that cannot be used.
#include <filesystem>
#include <fstream>

#include "dtrain/data/matching_files.h"
#include "dtrain/data/token_windows.h"
#include "dtrain/parallel/train/registry.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

struct Window {
  std::vector<std::int32_t> input;
  std::vector<std::int64_t> target;
};

Window read_window(const Dataset& data, std::int64_t index) {
  const auto context = static_cast<std::size_t>(data.spec().input.shape.elements());
  Window window{std::vector<std::int32_t>(context), std::vector<std::int64_t>(context)};
  data.read(index, std::as_writable_bytes(std::span(window.input)),
            std::as_writable_bytes(std::span(window.target)));
  return window;
}

template <typename T>
std::string numbers(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(std::uint32_t magic, std::uint32_t version, std::uint32_t tokens) {
  std::vector<std::uint32_t> fields(256);
  fields[0] = magic;
  fields[1] = version;
  fields[2] = tokens;
  return numbers(fields);
}

std::vector<std::uint16_t> counting(std::size_t count, std::size_t period = 100) {
  std::vector<std::uint16_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint16_t>(i % period);
  return values;
}

class TokensTest : public DataFiles {
 protected:
  TokenWindows text(const std::string& content, std::int64_t context,
                    std::int64_t stride = 0) const {
    return TokenWindows({.paths = {write("text", content)},
                         .file = {.vocabulary = 256, .width = 1},
                         .context = context,
                         .stride = stride});
  }
  static TokenWindows tokens(const std::vector<std::string>& paths, std::int64_t context,
                             TokenFileOptions options = {.vocabulary = 100}) {
    return TokenWindows({.paths = paths, .file = options, .context = context});
  }
  std::string refusal(const std::string& content,
                      TokenFileOptions options = {.vocabulary = 100}) const {
    const std::string file = write("tokens", content);
    const std::string message = error_text([&] { TokenFile(file, options); });
    EXPECT_TRUE(message.starts_with(file + ": ")) << message;
    return message.substr(std::min(file.size() + 2, message.size()));
  }
};

TEST_F(TokensTest, EveryByteOfAWindowPredictsTheNext) {
  const TokenWindows data = text("abcdefghij", 4);
  EXPECT_EQ(data.spec().input.dtype, DType::i32);
  EXPECT_EQ(data.spec().input.shape, (Shape{4}));
  EXPECT_EQ(data.spec().target.dtype, DType::i64);
  EXPECT_EQ(data.spec().target.shape, (Shape{4}));
  EXPECT_EQ(data.spec().classes, 256);
  ASSERT_EQ(data.size(), 2);  // "abcd" + "e", "efgh" + "i"; "ij" is no window
  EXPECT_EQ(read_window(data, 1).input, (std::vector<std::int32_t>{'e', 'f', 'g', 'h'}));
  EXPECT_EQ(read_window(data, 1).target, (std::vector<std::int64_t>{'f', 'g', 'h', 'i'}));
  EXPECT_EQ(data.origin(1), path("text") + ": 5 tokens from token 4 on");
}

TEST_F(TokensTest, AnyByteIsText) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const TokenWindows data = text(all, 255);
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(read_window(data, 0).input[200], 200);
  EXPECT_EQ(read_window(data, 0).target[254], 255);
}

TEST_F(TokensTest, WindowsMayOverlapOrLeaveGaps) {
  const TokenWindows close = text("abcdefgh", 4, 1);
  ASSERT_EQ(close.size(), 4);
  EXPECT_EQ(read_window(close, 3).input, (std::vector<std::int32_t>{'d', 'e', 'f', 'g'}));
  const TokenWindows apart = text("abcdefgh", 2, 5);
  ASSERT_EQ(apart.size(), 2);
  EXPECT_EQ(read_window(apart, 1).target, (std::vector<std::int64_t>{'g', 'h'}));
  EXPECT_NE(close.identity(), apart.identity());
}

TEST_F(TokensTest, OneTokenIsAWindowToo) {
  const TokenWindows data = text("ab", 1);
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(read_window(data, 0).input, (std::vector<std::int32_t>{'a'}));
  EXPECT_EQ(read_window(data, 0).target, (std::vector<std::int64_t>{'b'}));
}

TEST_F(TokensTest, AContextLongerThanTheFileIsNamed) {
  EXPECT_EQ(error_text([&] { text("abcd", 4); }),
            path("text") +
                ": has 4 tokens, but a window of context 4 needs 5: use a shorter "
                "context");
  EXPECT_EQ(error_text([&] { text("", 4); }), path("text") + ": file is empty");
}

TEST_F(TokensTest, BothWidthsAndHeadersGiveTheSameTokens) {
  const std::vector<std::uint16_t> narrow = counting(50);
  const std::vector<std::uint32_t> wide(narrow.begin(), narrow.end());
  const std::vector<std::string> contents = {numbers(narrow),
                                             header(20240520, 1, 50) + numbers(narrow),
                                             header(20240801, 7, 50) + numbers(wide)};
  for (const std::string& content : contents) {
    const TokenWindows data = tokens({write("t.bin", content)}, 8);
    ASSERT_EQ(data.size(), 6);
    EXPECT_EQ(read_window(data, 5).input,
              (std::vector<std::int32_t>{40, 41, 42, 43, 44, 45, 46, 47}));
    EXPECT_EQ(read_window(data, 5).target[7], 48);
  }
  const TokenWindows raw =
      tokens({write("w.bin", numbers(wide))}, 8, {.vocabulary = 100, .width = 4});
  EXPECT_EQ(read_window(raw, 5).target[7], 48);
}

TEST_F(TokensTest, AVocabularyThat16BitsCannotHoldIsReadAs32) {
  const std::vector<std::uint32_t> wide{1, 70000, 65536, 2};
  const TokenWindows data = tokens({write("t.bin", numbers(wide))}, 3, {.vocabulary = 70001});
  EXPECT_EQ(read_window(data, 0).target, (std::vector<std::int64_t>{70000, 65536, 2}));
}

TEST_F(TokensTest, ShardsAreOneRow) {
  const std::vector<std::uint16_t> all = counting(30);
  for (const auto& [name, first, last] :
       {std::tuple("s_1.bin", 0, 7), {"s_2.bin", 7, 8}, {"s_3.bin", 8, 30}}) {
    const std::vector<std::uint16_t> part(all.begin() + first, all.begin() + last);
    write(name, header(20240520, 1, static_cast<std::uint32_t>(part.size())) + numbers(part));
  }
  const TokenWindows whole = tokens({write("all.bin", numbers(all))}, 4);
  const TokenWindows shards = tokens(matching_files(path("s_*.bin")), 4);
  ASSERT_EQ(shards.size(), whole.size());
  for (std::int64_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(read_window(shards, i).input, read_window(whole, i).input);
    EXPECT_EQ(read_window(shards, i).target, read_window(whole, i).target);
  }
  EXPECT_EQ(shards.origin(2), path("s_3.bin") + ": 5 tokens from token 0 on");
  EXPECT_EQ(error_text([&] { tokens(matching_files(path("s_*.bin")), 30); }),
            path("s_1.bin") +
                ": and 2 more files have 30 tokens, but a window of context 30 needs "
                "31: use a shorter context");
}

TEST_F(TokensTest, ATokenOutsideTheVocabularyNamesFilePositionAndValue) {
  std::vector<std::uint16_t> values = counting(90, 90);
  values[57] = 100;
  const std::string file = write("t.bin", numbers(values));
  const TokenWindows data = tokens({file}, 8);
  const std::string text =
      file + ": record 57: token 100, but the vocabulary has 100 (ids 0 to 99)";
  EXPECT_EQ(error_text([&] { data.check(0, data.size()); }), text);
  EXPECT_EQ(error_text([&] { read_window(data, 7); }), text);
  EXPECT_NO_THROW(data.check(0, 7));
  EXPECT_NO_THROW(data.check(8, data.size()));
  EXPECT_NO_THROW(read_window(data, 6));
}

// As input of the next window and as target of the one before.
TEST_F(TokensTest, ABadTokenAtABorderIsInBothWindows) {
  std::vector<std::uint16_t> values = counting(90, 90);
  values[56] = 65535;
  const TokenWindows data = tokens({write("t.bin", numbers(values))}, 8);
  EXPECT_THROW(data.check(6, 7), DataError);
  EXPECT_THROW(data.check(7, 8), DataError);
  EXPECT_THROW(read_window(data, 6), DataError);
  EXPECT_THROW(read_window(data, 7), DataError);
  EXPECT_NO_THROW(data.check(5, 6));
}

TEST_F(TokensTest, ASizeThatIsNoWholeNumberOfTokensIsCut) {
  EXPECT_EQ(refusal(numbers(counting(50)) + "x"),
            "record 50: is cut: the file has 101 bytes, which are no whole number of tokens of 2 "
            "bytes");
}

TEST_F(TokensTest, NumbersOf32BitsReadAs16AreNoticed) {
  std::vector<std::uint32_t> wide(100);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    wide[i] = static_cast<std::uint32_t>(i * 7919 % 50257);
  }
  EXPECT_EQ(refusal(numbers(wide), {.vocabulary = 50257}),
            "looks like numbers of 32 bits read as 16: every other token is at most 0; set dtype: "
            "u32 (or dtype: u16 if it is right)");
  const std::string file = write("t.bin", numbers(wide));
  EXPECT_EQ(TokenFile(file, {.vocabulary = 50257, .width = 4}).size(), 100);
  EXPECT_EQ(TokenFile(file, {.vocabulary = 50257, .width = 2}).size(), 200);
  // The reverse gives numbers far outside.
  const std::string narrow = write("n.bin", numbers(counting(100)));
  const TokenWindows data = tokens({narrow}, 8, {.vocabulary = 100, .width = 4});
  EXPECT_EQ(error_text([&] { data.check(0, 1); }),
            narrow +
                ": record 0: token 65536, but the vocabulary has 100 (ids 0 to 99); is it a "
                "file of 16 bits (dtype: u16)?");
  // Small ids, and a file of zeros, say nothing about the width.
  EXPECT_EQ(TokenFile(write("z.bin", std::string(400, '\0')), {.vocabulary = 100}).size(), 200);
  EXPECT_EQ(TokenFile(write("s.bin", numbers(counting(100, 20))), {.vocabulary = 100}).size(), 100);
}

TEST_F(TokensTest, HeadersMustBeRight) {
  const std::string body = numbers(counting(50));
  const TokenFileOptions llmc{.vocabulary = 100, .format = TokenFormat::llmc};
  EXPECT_EQ(refusal(header(20240520, 2, 50) + body), "version 2 in the header, expected 1");
  EXPECT_EQ(refusal(header(20240522, 1, 50) + body),
            "magic 20240522 is that of another kind of file of llm.c, expected 20240520 or "
            "20240801");
  EXPECT_EQ(refusal(header(__builtin_bswap32(20240520), 1, 50) + body),
            "magic 20240520 in big-endian order: tokens must be little-endian");
  EXPECT_EQ(refusal(header(4711, 1, 50) + body, llmc),
            "magic 4711 is not that of llm.c's tokens, expected 20240520 or 20240801");
  EXPECT_EQ(refusal(header(20240520, 1, 60) + body),
            "record 50: is cut: the header claims 60 tokens, which need 1144 bytes, but the file "
            "has 1124");
  EXPECT_EQ(refusal(header(20240520, 1, 40) + body),
            "the header claims 40 tokens, which need 1104 bytes, but the file has 1124");
  EXPECT_EQ(refusal(header(20240520, 1, 50).substr(0, 500)),
            "header incomplete: expected 1024 bytes, file has 500");
  EXPECT_EQ(refusal("ab", llmc), "header incomplete: expected 1024 bytes, file has 2");
  EXPECT_EQ(refusal(header(20240520, 1, 0)), "holds no tokens");
  EXPECT_EQ(refusal(header(20240520, 1, 50) + body, {.vocabulary = 100, .width = 4}),
            "dtype u32 was asked for, but the header says u16");
  // Taken for tokens where the recipe says so.
  const std::string file = write("raw.bin", header(20240520, 1, 50) + body);
  EXPECT_EQ(TokenFile(file, {.vocabulary = 100, .width = 2, .format = TokenFormat::raw}).size(),
            562);
}

TEST_F(TokensTest, OtherFormatsAreNamed) {
  EXPECT_EQ(refusal(""), "file is empty");
  EXPECT_EQ(refusal("\x93NUMPY rest"), "is a NumPy array, not a file of tokens");
  EXPECT_EQ(refusal(gzip("abcdef")), "is gzip, not a file of tokens");
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\n"),
            "is a Git LFS pointer, not a file of tokens");
  EXPECT_EQ(refusal("<!DOCTYPE html>\n"), "is an HTML page, not a file of tokens");
}

// Offsets need 64 bits, and only the pages that are read take memory.
TEST_F(TokensTest, LargeFilesAreReadWhereTheyAreAskedFor) {
  const std::string file = path("large.bin");
  std::ofstream(file).close();
  constexpr std::int64_t bytes = std::int64_t{6} << 30;
  std::filesystem::resize_file(file, bytes);
  {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(bytes - 6);
    const std::string last = numbers(std::vector<std::uint16_t>{11, 12, 13});
    stream.write(last.data(), static_cast<std::streamsize>(last.size()));
  }
  const TokenWindows data = tokens({file}, 1023, {.vocabulary = 100, .width = 2});
  EXPECT_EQ(data.size(), ((bytes / 2) - 1) / 1023);
  const TokenWindows tail(
      {.paths = {file}, .file = {.vocabulary = 100, .width = 2}, .context = 2, .stride = 1});
  const Window window = read_window(tail, tail.size() - 1);
  EXPECT_EQ(window.input, (std::vector<std::int32_t>{11, 12}));
  EXPECT_EQ(window.target, (std::vector<std::int64_t>{12, 13}));
}

TEST_F(TokensTest, AFileThatChangesWhileInUseIsAnError) {
  const std::string file = write("t.bin", numbers(counting(100)));
  const TokenWindows data = tokens({file}, 8);
  EXPECT_NO_THROW(read_window(data, 11));
  // Another file of that name is not the one that is open.
  std::filesystem::rename(write("other", numbers(counting(5))), file);
  EXPECT_NO_THROW(read_window(data, 11));

  const std::string cut = write("cut.bin", numbers(counting(100)));
  const TokenWindows shorter = tokens({cut}, 8);
  std::filesystem::resize_file(cut, 150);
  EXPECT_EQ(error_text([&] { read_window(shorter, 11); }),
            cut + ": record 88: the file became shorter while it was in use");
  EXPECT_EQ(error_text([&] { read_window(shorter, 0); }),
            cut + ": record 0: the file became shorter while it was in use");

  const std::string written = write("written.bin", numbers(counting(100)));
  const TokenWindows other = tokens({written}, 8);
  std::filesystem::last_write_time(
      written, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(2));
  EXPECT_EQ(error_text([&] { read_window(other, 0); }),
            written + ": record 0: the file was changed while it was in use");
}

TEST_F(TokensTest, IdentityIsThatOfTheContent) {
  const std::string a = write("a.bin", numbers(counting(100)));
  const std::string b = write("b.bin", numbers(counting(100)));
  const std::string c = write("c.bin", numbers(counting(100, 99)));
  EXPECT_EQ(tokens({a}, 8).identity(), tokens({b}, 8).identity());
  EXPECT_NE(tokens({a}, 8).identity(), tokens({c}, 8).identity());
  EXPECT_NE(tokens({a}, 8).identity(), tokens({a}, 9).identity());
}

// Shares, through a recipe.

class SharesTest : public DataFiles {
 protected:
  std::unique_ptr<Dataset> part(const std::string& keys) const {
    const Registry registry = builtin_registry();
    const Config config = parse_config(
        "model: {name: mlp, inputs: 1, outputs: 1}\ndata: {train: {kind: text, path: text, " +
            keys + "}}\nbatch: {global: 1, micro: 1}\n",
        "test.yaml", std::filesystem::path(path("text")).parent_path(), {}, registry.kinds());
    return registry.datasets.create(config.values.data().train(), "data.train");
  }
};

// Training and validation share no target, whatever the length, the strides and the cut.
TEST_F(SharesTest, ShareNoTarget) {
  for (const std::size_t bytes : {50, 57, 64, 101}) {
    write("text", std::string(bytes, 'x'));
    for (const int context : {1, 4, 7}) {
      for (const int stride : {1, 2, 4, 9}) {
        for (const int other : {1, 3, 7}) {
          for (const char* share : {"50%", "73.5%"}) {
            const auto train =
                part(fmt::format("context: {}, stride: {}, size: {}", context, stride, share));
            const auto validation =
                part(fmt::format("context: {}, stride: {}, offset: {}", context, other, share));
            const Extent a = train->extent(0, train->size());
            const Extent b = validation->extent(0, validation->size());
            EXPECT_EQ(a.content, b.content);
            EXPECT_LE(a.last, b.first) << bytes << ' ' << context << ' ' << stride << ' ' << share;
            // No more is left out than the cut and the end demand.
            EXPECT_LT(b.first - a.last, stride + other + context);
          }
        }
      }
    }
  }
}

TEST_F(SharesTest, AreOfTokensAndNumbersOfWindows) {
  write("text", std::string(101, 'x'));
  EXPECT_EQ(part("context: 10")->size(), 10);
  EXPECT_EQ(part("context: 10, size: 90%")->size(), 9);
  EXPECT_EQ(part("context: 10, offset: 90%")->size(), 1);
  EXPECT_EQ(part("context: 10, size: 95%")->size(), 9);
  EXPECT_EQ(part("context: 10, offset: 85%")->size(), 1);
  EXPECT_EQ(part("context: 10, offset: 3, size: 4")->size(), 4);
  EXPECT_EQ(part("context: 10, offset: 30%, size: 40%")->size(), 4);
  EXPECT_EQ(part("context: 10, offset: 3, size: 40%")->extent(0, 4).first, 30);
  EXPECT_EQ(part("context: 10, stride: 1, size: 50%")->size(), 41);
  EXPECT_EQ(error_text<ConfigError>([&] { part("context: 10, offset: 95%"); }),
            "data.train: no samples are left from offset 10 on: data set 'text' has 10 samples");
}

TEST_F(SharesTest, ContextIsRequiredWhereTheModelHasNone) {
  write("text", "abcdefgh");
  const std::string text = error_text<ConfigError>([&] { part("size: 1"); });
  EXPECT_NE(text.find("data.train.context: the key is required, because model mlp has no context "
                      "to take: a whole number (bytes of a window, each of which predicts the "
                      "next)"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace dtrain::test
