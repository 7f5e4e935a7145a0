// IDX files: what they mean, plain and packed, and what is said about those that are none.
#include "dtrain/data/mnist.h"

#include <sys/stat.h>

#include "dtrain/data/idx.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

class MnistTest : public DataFiles {
 protected:
  // Pixel k of image i is (i * 6 + k) % 256, of 2 x 3 images; label i % 10.
  static std::string images(std::uint32_t count) {
    std::string content = idx_header({2051, count, 2, 3});
    for (std::uint32_t k = 0; k < count * 6; ++k) content.push_back(static_cast<char>(k & 0xFF));
    return content;
  }
  static std::string labels(std::uint32_t count) {
    std::string content = idx_header({2049, count});
    for (std::uint32_t i = 0; i < count; ++i) content.push_back(static_cast<char>(i % 10));
    return content;
  }
  // The error that an images file of that content gives, without its path.
  std::string refusal(std::string_view content) const {
    const std::string file = write("images", content);
    const std::string text = error_text([&] { IdxFile(file, IdxKind::images); });
    EXPECT_TRUE(text.starts_with(file + ": ")) << text;
    return text.substr(std::min(file.size() + 2, text.size()));
  }
};

TEST_F(MnistTest, ReadsBytesAsSharesOf255) {
  const Mnist data(write("i", images(50)), write("l", labels(50)));
  EXPECT_EQ(data.size(), 50);
  EXPECT_EQ(data.spec().input.shape, (Shape{2, 3, 1}));
  EXPECT_EQ(data.spec().target.shape, Shape{});
  EXPECT_EQ(data.spec().classes, 10);
  const Sample sample = read_sample(data, 43);
  for (int k = 0; k < 6; ++k) {
    EXPECT_EQ(sample.input[static_cast<std::size_t>(k)],
              static_cast<float>((43 * 6 + k) % 256) / 255.0f);
  }
  EXPECT_EQ(sample.label, 3);
  EXPECT_EQ(data.origin(43), path("i") + ": image 43");
}

// Told apart by content: the name says nothing.
TEST_F(MnistTest, GzipGivesTheSameDataAndIdentity) {
  const Mnist plain(write("i.gz", images(50)), write("l", labels(50)));
  const Mnist packed(write("i2", gzip(images(50))), write("l2", gzip(labels(50))));
  for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(read_sample(plain, i), read_sample(packed, i));
  EXPECT_EQ(plain.identity(), packed.identity());
}

TEST_F(MnistTest, GzipMayHaveSeveralMembers) {
  const std::string content = images(3);
  const IdxFile file(write("i", gzip(content.substr(0, 10)) + gzip(content.substr(10))),
                     IdxKind::images);
  std::vector<std::uint8_t> pixels(6);
  file.read(2, pixels);
  EXPECT_EQ(pixels, (std::vector<std::uint8_t>{12, 13, 14, 15, 16, 17}));
}

TEST_F(MnistTest, IdentityChangesWithEveryByteThatCounts) {
  const std::string labels_path = write("l", labels(50));
  const std::string before = Mnist(write("i", images(50)), labels_path).identity();
  std::string other = images(50);
  other[100] ^= 1;
  EXPECT_NE(Mnist(write("i", other), labels_path).identity(), before);
  std::string other_labels = labels(50);
  other_labels[8 + 49] ^= 1;
  EXPECT_NE(Mnist(write("i", images(50)), write("l", other_labels)).identity(), before);
}

TEST_F(MnistTest, OtherFormatsAreNamed) {
  EXPECT_EQ(refusal("<!DOCTYPE html>\n<html>"), "is an HTML page, not IDX");
  EXPECT_EQ(refusal("\n <html>"), "is an HTML page, not IDX");
  EXPECT_EQ(refusal(gzip("<!DOCTYPE html>\n<html>")), "is an HTML page, not IDX");
  EXPECT_EQ(refusal(gzip(gzip(images(2)))), "is gzip inside gzip, not IDX");
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\n"),
            "is a Git LFS pointer, not IDX");
  EXPECT_EQ(refusal(std::string("PK\x03\x04rest of an archive")), "is a zip archive, not IDX");
  EXPECT_EQ(refusal(""), "file is empty");
  EXPECT_EQ(refusal("0123456789abcdefgh"),
            "magic 808530483 is not IDX, expected 2051 (images of unsigned bytes)");
}

TEST_F(MnistTest, OtherKindsOfIdxAreNamed) {
  EXPECT_EQ(refusal(labels(20)), "magic 2049 is labels, expected 2051 (images of unsigned bytes)");
  EXPECT_EQ(refusal(idx_header({0x0D03, 1, 2, 3}) + std::string(24, '\0')),
            "magic 3331 is IDX type 0x0D (32-bit float), which is not supported, expected 2051 "
            "(images of unsigned bytes)");
  EXPECT_EQ(refusal(idx_header({0x0804, 1, 2, 3, 1})),
            "magic 2052 is IDX of 4 dimensions, expected 2051 (images of unsigned bytes)");
  const std::string file = write("images", images(2));
  EXPECT_EQ(error_text([&] { IdxFile(file, IdxKind::labels); }),
            file + ": magic 2051 is images, expected 2049 (labels of unsigned bytes)");
}

TEST_F(MnistTest, SizesMustBeThoseOfTheHeader) {
  EXPECT_EQ(refusal(images(2).substr(0, 8)), "header incomplete: expected 16 bytes, file has 8");
  EXPECT_EQ(refusal(images(2).substr(0, 3)), "header incomplete: expected 16 bytes, file has 3");
  const std::string digits = idx_header({2051, 100, 28, 28});
  EXPECT_EQ(refusal(digits + std::string(99 * 784, 'x')), "expected 78416 bytes, file has 77632");
  EXPECT_EQ(refusal(digits + std::string(100 * 784 + 1, 'x')),
            "expected 78416 bytes, file has 78417");
  EXPECT_EQ(refusal(gzip(digits + std::string(99 * 784, 'x'))),
            "expected 78416 bytes, file has 77632 (unpacked)");
  EXPECT_EQ(refusal(idx_header({2051, 0, 28, 28})), "holds 0 images");
  EXPECT_EQ(refusal(idx_header({2051, 3, 0, 28})), "axis 1 of the images is 0");
  EXPECT_EQ(refusal(idx_header({2051, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF})),
            "header claims more bytes than a file can have");
}

// A header may claim anything, and a small file may unpack to anything: neither is believed.
TEST_F(MnistTest, BombsAreNotUnpacked) {
  const std::string claim = gzip(idx_header({2051, 1'000'000, 28, 28}) + std::string(784, '\0'));
  EXPECT_EQ(refusal(claim), fmt::format("expected 784000016 bytes, more than {} bytes of gzip can "
                                        "hold",
                                        claim.size()));
  EXPECT_EQ(refusal(gzip(idx_header({2051, 1, 28, 28}) + std::string(50'000'000, '\0'))),
            "expected 800 bytes, file has more (unpacked)");
}

TEST_F(MnistTest, DamagedGzipIsNamed) {
  std::string noise = idx_header({2051, 4, 28, 28});
  for (std::uint32_t i = 0; i < 4 * 784; ++i) {
    noise.push_back(static_cast<char>((i * 2654435761u) >> 24));
  }
  const std::string packed = gzip(noise);
  EXPECT_EQ(refusal(packed.substr(0, packed.size() / 2)),
            fmt::format("gzip data is cut off at byte {}", packed.size() / 2));
  std::string damaged = packed;
  damaged[packed.size() - 8] ^= 1;  // the checksum
  EXPECT_EQ(refusal(damaged), fmt::format("gzip data is corrupt near byte {}: incorrect data check",
                                          packed.size() - 4));
}

TEST_F(MnistTest, ImagesAndLabelsMustMatch) {
  const std::string i = write("i", images(100));
  const std::string l = write("l", labels(60));
  EXPECT_EQ(error_text([&] { Mnist(i, l); }), i + ": 100 images, but 60 labels in " + l);
}

TEST_F(MnistTest, ALabelOutOfRangeIsNamedAndMayBeSkipped) {
  std::string wrong = labels(50);
  wrong[8 + 17] = 10;
  const Mnist data(write("i", images(50)), write("l", wrong));
  const std::string text = path("l") + ": record 17: label 10, but there are 10 classes (0 to 9)";
  EXPECT_EQ(error_text([&] { data.check(0, 50); }), text);
  EXPECT_EQ(error_text([&] { read_sample(data, 17); }), text);
  EXPECT_NO_THROW(data.check(18, 50));
  EXPECT_EQ(read_sample(data, 18).label, 8);
}

TEST_F(MnistTest, AFileThatShrinksMeanwhileIsAnError) {
  const std::string file = write("i", images(50));
  const Mnist data(file, write("l", labels(50)));
  std::filesystem::resize_file(file, 100);
  EXPECT_EQ(read_sample(data, 2).label, 2);
  EXPECT_EQ(error_text([&] { read_sample(data, 20); }),
            file + ": record 20: the file became shorter while it was in use");
}

// Neither waits for a writer.
TEST_F(MnistTest, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_text([&] { IdxFile(path("pipe"), IdxKind::images); }),
            path("pipe") + ": is not a regular file");
  std::filesystem::create_directory(path("folder"));
  EXPECT_EQ(error_text([&] { IdxFile(path("folder"), IdxKind::images); }),
            path("folder") + ": is a folder, expected a file");
  EXPECT_EQ(error_text([&] { IdxFile(path("none"), IdxKind::images); }),
            path("none") + ": cannot open: No such file or directory (ENOENT)");
}

}  // namespace
}  // namespace dtrain::test
