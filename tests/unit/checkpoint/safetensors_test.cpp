#include "dtrain/core/checkpoint/safetensors.h"

#include <algorithm>

#include "checkpoint_testing.h"

namespace dtrain {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_.path() / "a.safetensors";
};

TEST_F(SafetensorsTest, BytesAreExactlyThese) {
  const std::vector<float> w = {1, -2};
  const std::vector<std::uint8_t> u = {7, 8, 9};
  const std::vector<NamedTensor> tensors = {
      {"w", DType::f32, Shape{2}, std::as_bytes(std::span(w))},
      {"a", DType::u8, Shape{3}, std::as_bytes(std::span(u))},
  };
  const FileDigest digest = write_safetensors(path_, tensors);
  // Entries in name order, data in order of element size, so that w is aligned.
  std::string header = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
                       R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string expected(1, static_cast<char>(header.size()));
  expected.resize(8, '\0');
  expected += header;
  expected += std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0\x07\x08\x09", 11);
  const std::string found = read_file(path_);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(digest.size, expected.size());
  EXPECT_EQ(digest.digest, hash_hex(std::as_bytes(std::span(expected))));
}

TEST_F(SafetensorsTest, OrderOfTensorsDoesNotChangeTheBytes) {
  const std::vector<float> w(100, 0.5f);
  std::vector<NamedTensor> tensors;
  for (const char* name : {"b", "a.10", "a.9", "Z", "c"}) {
    tensors.push_back({name, DType::f32, Shape{10, 10}, std::as_bytes(std::span(w))});
  }
  write_safetensors(path_, tensors);
  const std::string first = read_file(path_);
  std::ranges::reverse(tensors);
  write_safetensors(path_, tensors);
  EXPECT_EQ(read_file(path_), first);
}

TEST_F(SafetensorsTest, EveryTypeComesBackAligned) {
  const std::vector<std::byte> bytes(64, std::byte{0x5a});
  std::vector<NamedTensor> tensors;
  int i = 0;
  for (DType dtype : {DType::u8, DType::bf16, DType::i64, DType::f16, DType::f32, DType::i32}) {
    const auto size = static_cast<std::int64_t>(3 * size_of(dtype));
    tensors.push_back({"t" + std::to_string(i++), dtype, Shape{3},
                       std::span(bytes).first(static_cast<std::size_t>(size))});
  }
  write_safetensors(path_, tensors);
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.entries().size(), tensors.size());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, read_file(path_).data(), 8);
  EXPECT_EQ(header_bytes % 8, 0u);
  for (const NamedTensor& tensor : tensors) {
    const TensorEntry* entry = file.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
    EXPECT_EQ(entry->begin % size_of(tensor.dtype), 0u) << tensor.name;
  }
  EXPECT_EQ(file.find("t"), nullptr);
  EXPECT_EQ(file.find("t6"), nullptr);
}

TEST_F(SafetensorsTest, ScalarEmptyTensorAndMetadata) {
  const float scalar = 4.5f;
  const std::vector<NamedTensor> tensors = {
      {"scalar", DType::f32, Shape{}, std::as_bytes(std::span(&scalar, 1))},
      {"none", DType::f32, Shape{0}, {}},
      {"none too", DType::i64, Shape{3, 0, 2}, {}},
  };
  write_safetensors(path_, tensors, {{"format", "pt"}, {"by \"me\"", "1\n2"}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"by \"me\"", "1\n2"}}));
  float read = 0;
  file.read(*file.find("scalar"), std::as_writable_bytes(std::span(&read, 1)));
  EXPECT_EQ(read, 4.5f);
  EXPECT_EQ(file.find("scalar")->shape, Shape{});
  EXPECT_EQ(file.find("none too")->shape, (Shape{3, 0, 2}));
  file.read(*file.find("none"), {});
}

TEST_F(SafetensorsTest, NoTensorsAtAll) {
  write_safetensors(path_, {});
  EXPECT_EQ(read_file(path_), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(SafetensorsFile(path_).entries().empty());
}

TEST_F(SafetensorsTest, LargeTensorsAndManySmallOnes) {
  // Above and below the size at which pieces are gathered before they are written.
  std::vector<std::vector<float>> values;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 40; ++i) values.emplace_back(i % 10 == 0 ? 700'001 : 1000 + i, float(i));
  for (int i = 0; i < 40; ++i) {
    tensors.push_back({"layer." + std::to_string(i), DType::f32,
                       Shape{static_cast<std::int64_t>(values[i].size())},
                       std::as_bytes(std::span(values[i]))});
  }
  const FileDigest digest = write_safetensors(path_, tensors);
  EXPECT_EQ(digest_file(path_), digest);
  const SafetensorsFile file(path_);
  for (int i = 0; i < 40; ++i) {
    std::vector<float> read(values[i].size());
    file.read(*file.find("layer." + std::to_string(i)), std::as_writable_bytes(std::span(read)));
    ASSERT_EQ(read, values[i]);
  }
}

TEST_F(SafetensorsTest, MistakesOfTheProgramAreInternalErrors) {
  const float value = 1;
  const NamedTensor good{"a", DType::f32, Shape{}, std::as_bytes(std::span(&value, 1))};
  NamedTensor named_so = good;
  named_so.name = "__metadata__";
  NamedTensor misshaped = good;
  misshaped.shape = Shape{2};
  EXPECT_THROW(write_safetensors(path_, std::vector{good, good}), InternalError);
  EXPECT_THROW(write_safetensors(path_, std::vector{named_so}), InternalError);
  EXPECT_THROW(write_safetensors(path_, std::vector{misshaped}), InternalError);
  NamedTensor not_text = good;
  not_text.name = "\xff";
  EXPECT_EQ(checkpoint_error_of([&] { write_safetensors(path_, std::vector{not_text}); }),
            path_.string() + ": name '\xff' is not valid UTF-8");
}

TEST_F(SafetensorsTest, CannotCreate) {
  const auto missing = folder_.path() / "no" / "a.safetensors";
  EXPECT_EQ(checkpoint_error_of([&] { write_safetensors(missing, {}); }),
            missing.string() +
                ": cannot create: No such file or directory (ENOENT); its folder is "
                "missing: leave it alone while the run goes");
}

TEST(QuotedTensorName, EscapesAndCuts) {
  EXPECT_EQ(quoted_tensor_name("a.b"), "'a.b'");
  EXPECT_EQ(quoted_tensor_name("a\n\x1b[31m"), "'a\\x0a\\x1b[31m'");
  EXPECT_EQ(quoted_tensor_name(std::string(500, 'x')), "'" + std::string(120, 'x') + "...'");
  // Cut before a character of two bytes, not inside of it.
  EXPECT_EQ(quoted_tensor_name(std::string(119, 'x') + "\xc3\xa9\xc3\xa9"),
            "'" + std::string(119, 'x') + "...'");
}

}  // namespace
}  // namespace dtrain
