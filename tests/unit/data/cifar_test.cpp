// CIFAR records: where each byte goes, and what is said about files that hold none.
#include "dtrain/data/cifar.h"

#include <filesystem>

#include "dtrain/data/matching_files.h"
#include "dtrain/tests/unit/data/data_testing.h"

namespace dtrain::test {
namespace {

class CifarTest : public DataFiles {
 protected:
  // A record whose pixel (c, y, x) is (c * 64 + y + x) % 256.
  static std::string record(std::initializer_list<int> labels) {
    std::string bytes;
    for (const int label : labels) bytes.push_back(static_cast<char>(label));
    for (int c = 0; c < 3; ++c) {
      for (int y = 0; y < 32; ++y) {
        for (int x = 0; x < 32; ++x) bytes.push_back(static_cast<char>((c * 64 + y + x) % 256));
      }
    }
    return bytes;
  }
  static std::string three_of_10() { return record({7}) + record({0}) + record({9}); }
  static std::string three_of_100() { return record({19, 99}) + record({0, 42}) + record({3, 0}); }
  static Cifar open(const std::string& path, CifarKind kind,
                    CifarLabels labels = CifarLabels::fine) {
    return {cifar_files(path, kind, false), kind, labels};
  }
};

void expect_pixels(const Sample& sample) {
  for (std::size_t y = 0; y < 32; ++y) {
    for (std::size_t x = 0; x < 32; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(sample.input[(y * 32 + x) * 3 + c],
                  static_cast<float>((c * 64 + y + x) % 256) / 255.0f)
            << y << ' ' << x << ' ' << c;
      }
    }
  }
}

TEST_F(CifarTest, PlanesOfTenClassesBecomePixels) {
  const Cifar data = open(write("a.bin", three_of_10()), CifarKind::cifar10);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.spec().input.shape, (Shape{32, 32, 3}));
  EXPECT_EQ(data.spec().target.shape, Shape{});
  EXPECT_EQ(data.spec().classes, 10);
  const std::vector<std::int64_t> labels{7, 0, 9};
  for (std::int64_t i = 0; i < 3; ++i) {
    const Sample sample = read_sample(data, i);
    EXPECT_EQ(sample.label, labels[static_cast<std::size_t>(i)]);
    expect_pixels(sample);
  }
  EXPECT_EQ(data.origin(2), path("a.bin") + ": record 2");
}

TEST_F(CifarTest, AHundredClassesHaveFineLabelsUnlessCoarseOnesAreAskedFor) {
  const std::string file = write("a.bin", three_of_100());
  const Cifar fine = open(file, CifarKind::cifar100);
  const Cifar coarse = open(file, CifarKind::cifar100, CifarLabels::coarse);
  EXPECT_EQ(fine.spec().classes, 100);
  EXPECT_EQ(coarse.spec().classes, 20);
  EXPECT_EQ(read_sample(fine, 0).label, 99);
  EXPECT_EQ(read_sample(fine, 1).label, 42);
  EXPECT_EQ(read_sample(coarse, 0).label, 19);
  EXPECT_EQ(read_sample(coarse, 2).label, 3);
  expect_pixels(read_sample(fine, 1));
  EXPECT_NE(fine.identity(), coarse.identity());
}

TEST_F(CifarTest, TheOtherKindIsRecognizedByItsSize) {
  const std::string of_10 = write("10.bin", three_of_10());
  const std::string of_100 = write("100.bin", three_of_100());
  EXPECT_EQ(error_text([&] { open(of_10, CifarKind::cifar100); }),
            of_10 +
                ": 9219 bytes are 3 records of 3073 bytes, as CIFAR-10 has, and not of 3074, "
                "as CIFAR-100 has (rest 3071): use kind: cifar10");
  EXPECT_EQ(error_text([&] { open(of_100, CifarKind::cifar10); }),
            of_100 +
                ": 9222 bytes are 3 records of 3074 bytes, as CIFAR-100 has, and not of 3073, "
                "as CIFAR-10 has (rest 3): use kind: cifar100");
}

TEST_F(CifarTest, ACutRecordIsNamed) {
  std::string content = three_of_10();
  content.pop_back();
  const std::string file = write("cut.bin", content);
  EXPECT_EQ(error_text([&] { open(file, CifarKind::cifar10); }),
            file + ": record 2: is cut: 3072 of 3073 bytes (the file has 9218)");
  const std::string empty = write("empty.bin", "");
  EXPECT_EQ(error_text([&] { open(empty, CifarKind::cifar10); }), empty + ": file is empty");
}

TEST_F(CifarTest, OtherFormatsAreNamed) {
  const std::string packed = write("cifar-10-binary.tar.gz", gzip(three_of_10()));
  EXPECT_EQ(error_text([&] { open(packed, CifarKind::cifar10); }),
            packed + ": is gzip, not records of CIFAR-10");
  const std::string page = write("page", "<!DOCTYPE html>");
  EXPECT_EQ(error_text([&] { open(page, CifarKind::cifar100); }),
            page + ": is an HTML page, not records of CIFAR-100");
}

TEST_F(CifarTest, ALabelOutOfRangeNamesRecordAndValue) {
  const std::string file = write("a.bin", record({1}) + record({10}));
  const Cifar data = open(file, CifarKind::cifar10);
  const std::string text = file + ": record 1: label 10, but there are 10 classes (0 to 9)";
  EXPECT_EQ(error_text([&] { data.check(0, 2); }), text);
  EXPECT_EQ(error_text([&] { read_sample(data, 1); }), text);
  EXPECT_NO_THROW(data.check(0, 1));
  EXPECT_EQ(read_sample(data, 0).label, 1);
  const std::string fine = write("100.bin", record({0, 100}));
  EXPECT_EQ(error_text([&] { open(fine, CifarKind::cifar100).check(0, 1); }),
            fine + ": record 0: label 100, but there are 100 classes (0 to 99)");
}

TEST_F(CifarTest, AFolderHasItsSplits) {
  for (const char* name : {"data_batch_2.bin", "data_batch_1.bin", "test_batch.bin", "notes.txt"}) {
    write(name, name[0] == 'd' ? record({name[11] - '0'}) : three_of_10());
  }
  const std::string folder = std::filesystem::path(path("x")).parent_path().string();
  EXPECT_EQ(cifar_files(folder, CifarKind::cifar10, false),
            (std::vector<std::string>{path("data_batch_1.bin"), path("data_batch_2.bin")}));
  EXPECT_EQ(cifar_files(folder, CifarKind::cifar10, true),
            (std::vector<std::string>{path("test_batch.bin")}));
  const Cifar both = open(folder, CifarKind::cifar10);
  ASSERT_EQ(both.size(), 2);
  EXPECT_EQ(read_sample(both, 1).label, 2);
  EXPECT_EQ(both.origin(1), path("data_batch_2.bin") + ": record 0");
  EXPECT_EQ(error_text([&] { cifar_files(folder, CifarKind::cifar100, false); }),
            folder + ": the folder has no train.bin, as the binary version of CIFAR-100 does");
}

TEST_F(CifarTest, AFileThatIsCutWhileInUseIsAnError) {
  const std::string file = write("a.bin", three_of_10());
  const Cifar data = open(file, CifarKind::cifar10);
  std::filesystem::resize_file(file, 5000);
  EXPECT_NO_THROW(read_sample(data, 0));
  EXPECT_EQ(error_text([&] { read_sample(data, 1); }),
            file + ": record 1: the file became shorter while it was in use");
}

TEST_F(CifarTest, IdentityIsThatOfTheContent) {
  const std::string a = write("a.bin", three_of_10());
  std::string other = three_of_10();
  EXPECT_EQ(open(a, CifarKind::cifar10).identity(),
            open(write("b.bin", other), CifarKind::cifar10).identity());
  other[100] ^= 1;
  EXPECT_NE(open(a, CifarKind::cifar10).identity(),
            open(write("c.bin", other), CifarKind::cifar10).identity());
}

class MatchingFilesTest : public DataFiles {};

TEST_F(MatchingFilesTest, AreInTheOrderOfTheirBytes) {
  for (const char* name : {"t_b.bin", "t_B.bin", "t_10.bin", "t_2.bin", "u.bin"}) write(name, "x");
  EXPECT_EQ(matching_files(path("t_*.bin")),
            (std::vector<std::string>{path("t_10.bin"), path("t_2.bin"), path("t_B.bin"),
                                      path("t_b.bin")}));
  EXPECT_EQ(matching_files(path("t_[0-9].bin")), (std::vector<std::string>{path("t_2.bin")}));
  EXPECT_EQ(error_text([&] { matching_files(path("v_*.bin")); }),
            path("v_*.bin") + ": no file matches");
  EXPECT_EQ(error_text([&] { matching_files(path("v.bin")); }),
            path("v.bin") + ": cannot open: No such file or directory (ENOENT)");
}

// A name with the signs of a pattern is itself first.
TEST_F(MatchingFilesTest, AFileOfExactlyThatNameIsMeant) {
  write("a[1].bin", "x");
  write("a1.bin", "x");
  EXPECT_EQ(matching_files(path("a[1].bin")), (std::vector<std::string>{path("a[1].bin")}));
}

}  // namespace
}  // namespace dtrain::test
