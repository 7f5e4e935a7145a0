// Files that are cut, foreign or made to break a reader: each is refused by name and reason, and no
// allocation exceeds the file (and the few hundred bytes of a message).
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "allocation_watch.h"
#include "checkpoint_testing.h"
#include <fmt/format.h>

#include "dtrain/core/checkpoint/safetensors.h"

namespace dtrain {
namespace {

std::string length_of(std::uint64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_of(header.size()) + header + std::string(data_bytes, '\1');
}

std::string entry(const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "F32") {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}

class HostileFile : public testing::Test {
 protected:
  // Message after the path.
  std::string refusal(const std::string& content) {
    write_raw(path_, content);
    return refusal_of(path_, content.size());
  }

  std::string refusal_of(const std::filesystem::path& path, std::size_t size) {
    reset_largest_allocation();
    const std::string message = checkpoint_error_of([&] { SafetensorsFile{path}; });
    EXPECT_LE(largest_allocation(), std::max<std::size_t>(2 * size, 4096)) << message;
    const std::string prefix = path.string() + ": ";
    if (!message.starts_with(prefix)) return "no path in: " + message;
    return message.substr(prefix.size());
  }

  // Refusal of a header over four bytes of data.
  std::string header_refusal(const std::string& header, std::size_t data_bytes = 4) {
    return refusal(file_of(header, data_bytes));
  }

  TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_.path() / "w.safetensors";
};

TEST_F(HostileFile, GitLfsPointer) {
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\n"
                    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                    "size 12345\n"),
            "this is a Git-LFS pointer, fetch the real file (git lfs pull)");
}

TEST_F(HostileFile, HtmlPage) {
  const std::string message = "this is an HTML page, not a safetensors file: fetch the file itself";
  EXPECT_EQ(refusal("<!DOCTYPE html><html>not found</html>"), message);
  EXPECT_EQ(refusal("\n  <html lang=en>"), message);
  EXPECT_EQ(refusal("\xef\xbb\xbf<!doctype html>"), message);
  EXPECT_EQ(refusal("<html>"), message);
}

TEST_F(HostileFile, ZipAndGzip) {
  EXPECT_EQ(refusal("PK\x03\x04" + std::string("\x08\x08\x08\x08garbage")),
            "this is a zip archive, perhaps of torch.save: convert it to safetensors");
  EXPECT_EQ(refusal("\x1f\x8b\x08\x08\x08\x08\x08\x08\x08"), "this is gzip-compressed: unpack it");
}

TEST_F(HostileFile, TooShort) {
  EXPECT_EQ(refusal(""), "too short for a safetensors file: 0 bytes, at least 8 are needed");
  EXPECT_EQ(refusal("1234567"), "too short for a safetensors file: 7 bytes, at least 8 are needed");
  EXPECT_EQ(refusal(length_of(0)), "not a safetensors file: its header does not start with '{'");
}

TEST_F(HostileFile, LastByteMissing) {
  const std::string good = file_of("{\"w\":" + entry("[2]", "[0,8]") + "}", 8);
  write_raw(path_, good);
  EXPECT_EQ(SafetensorsFile(path_).entries().size(), 1u);
  EXPECT_EQ(refusal(good.substr(0, good.size() - 1)),
            fmt::format("tensor 'w': data ends 1 byte early (file {}, needed {})", good.size() - 1,
                        good.size()));
  EXPECT_EQ(refusal(good.substr(0, good.size() - 8)),
            fmt::format("tensor 'w': data ends 8 bytes early (file {}, needed {})", good.size() - 8,
                        good.size()));
  // Cut inside of the header.
  EXPECT_EQ(refusal(good.substr(0, 20)),
            fmt::format("header ends {} bytes early (file 20, needed {})", good.size() - 8 - 20,
                        good.size() - 8));
}

TEST_F(HostileFile, HeaderLength) {
  const std::string rest = "{}      ";
  const auto above = [](std::uint64_t length) {
    return fmt::format(
        "not a safetensors file: its first 8 bytes claim a header of {} bytes, above the limit of "
        "100000000",
        length);
  };
  for (std::uint64_t length :
       {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{100'000'001}}) {
    EXPECT_EQ(refusal(length_of(length) + rest), above(length));
  }
  EXPECT_EQ(refusal(length_of(16) + rest), "header ends 8 bytes early (file 16, needed 24)");
  EXPECT_EQ(refusal(length_of(100'000'000) + rest),
            "header ends 99999992 bytes early (file 16, needed 100000008)");
}

TEST_F(HostileFile, Offsets) {
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[4,0]") + "}"),
            "tensor 'w': data_offsets [4, 0] end before they begin");
  const std::string past = "{\"w\":" + entry("[2]", "[0,8]") + "}";
  EXPECT_EQ(header_refusal(past),
            fmt::format("tensor 'w': data ends 4 bytes early (file {}, needed {})",
                        8 + past.size() + 4, 8 + past.size() + 8));
  EXPECT_EQ(
      header_refusal("{\"w\":" + entry("[1]", "[9223372036854775800,9223372036854775804]") + "}")
          .substr(0, 46),
      "tensor 'w': data ends 9223372036854775800 byte");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[0,9223372036854775808]") + "}"),
            "tensor 'w': data_offsets: 9223372036854775808 is too large");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[0,99999999999999999999999]") + "}"),
            "tensor 'w': data_offsets: 99999999999999999999999 is not an integer below 2^63");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[-4,0]") + "}"),
            "tensor 'w': data_offsets: -4 is negative");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[0,4.0]") + "}"),
            "tensor 'w': data_offsets: 4.0 is not an integer below 2^63");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[0,4,8]") + "}"),
            "tensor 'w': data_offsets are not two numbers");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[4]") + "}"),
            "tensor 'w': data_offsets are not two numbers");
}

TEST_F(HostileFile, Shapes) {
  EXPECT_EQ(
      header_refusal("{\"w\":" + entry("[4294967296,4294967296]", "[0,4]") + "}"),
      "tensor 'w': shape [4294967296, 4294967296] is too large: its bytes do not fit 63 bits");
  // 2^61 elements of 4 bytes: the elements fit, the bytes do not.
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[2305843009213693952]", "[0,4]") + "}"),
            "tensor 'w': shape [2305843009213693952] is too large: its bytes do not fit 63 bits");
  // Empty, but a product of the other axes wraps.
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[0,4294967296,4294967296]", "[0,0]") + "}", 0),
            "tensor 'w': shape [0, 4294967296, 4294967296] is too large: its bytes do not fit 63 "
            "bits");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[-1]", "[0,4]") + "}"),
            "tensor 'w': shape: -1 is negative");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[-0]", "[0,4]") + "}"),
            "tensor 'w': shape: 0 is negative");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1.5]", "[0,4]") + "}"),
            "tensor 'w': shape: 1.5 is not an integer below 2^63");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1e0]", "[0,4]") + "}"),
            "tensor 'w': shape: 1e0 is not an integer below 2^63");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[\"1\"]", "[0,4]") + "}"),
            "tensor 'w': shape has no place for '1'");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[3]", "[0,4]") + "}"),
            "tensor 'w': shape [3] of F32 takes 12 bytes, but data_offsets [0, 4] hold 4");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[0]", "[0,4]") + "}"),
            "tensor 'w': shape [0] of F32 takes 0 bytes, but data_offsets [0, 4] hold 4");
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1,1,1,1,1,1,1]", "[0,4]") + "}"),
            "tensor 'w': shape of more than 6 axes");
}

TEST_F(HostileFile, UnknownType) {
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[1]", "[0,4]", "F33") + "}"),
            "tensor 'w': dtype 'F33' is not one of F32, BF16, F16, I32, I64, U8");
  // Not even where it is the empty tensor that hides a wrapped product.
  EXPECT_EQ(header_refusal("{\"w\":" + entry("[0]", "[0,0]", "") + "}", 0),
            "tensor 'w': dtype '' is not one of F32, BF16, F16, I32, I64, U8");
}

TEST_F(HostileFile, Coverage) {
  const std::string a = "{\"a\":" + entry("[1]", "[0,4]");
  EXPECT_EQ(header_refusal(a + ",\"b\":" + entry("[1]", "[0,4]") + "}"),
            "tensor 'b': data_offsets [0, 4] overlap tensor 'a' at [0, 4]");
  EXPECT_EQ(header_refusal(a + ",\"b\":" + entry("[1]", "[2,6]") + "}", 6),
            "tensor 'b': data_offsets [2, 6] overlap tensor 'a' at [0, 4]");
  EXPECT_EQ(header_refusal(a + ",\"b\":" + entry("[1]", "[5,9]") + "}", 9),
            "tensor 'b': 1 bytes before its data belong to no tensor (a hole)");
  EXPECT_EQ(header_refusal(a + "}", 7), "3 trailing bytes after tensor 'a' belong to no tensor");
  EXPECT_EQ(header_refusal("{}", 4), "4 trailing bytes belong to no tensor");
}

TEST_F(HostileFile, Names) {
  const std::string w = "\"w\":" + entry("[1]", "[0,4]");
  EXPECT_EQ(header_refusal("{" + w + "," + w + "}"), "tensor 'w': the name stands twice");
  // The same name in another spelling.
  EXPECT_EQ(header_refusal("{" + w + ",\"\\u0077\":" + entry("[1]", "[0,4]") + "}"),
            "tensor 'w': the name stands twice");
  EXPECT_EQ(header_refusal("{\"__metadata__\":{},\"__metadata__\":{}}"),
            "__metadata__ stands twice");
  EXPECT_EQ(header_refusal("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"),
            "__metadata__: 'k' stands twice");
  const std::string invalid = header_refusal("{\"w\xff\":" + entry("[1]", "[0,4]") + "}");
  EXPECT_EQ(invalid.substr(0, invalid.find(':')), "header is not valid JSON at byte 4");
  EXPECT_NE(invalid.find("UTF-8"), std::string::npos) << invalid;
}

TEST_F(HostileFile, Fields) {
  EXPECT_EQ(header_refusal("{\"w\":{}}"), "tensor 'w': dtype is missing");
  EXPECT_EQ(header_refusal(R"({"w":{"dtype":"F32"}})"), "tensor 'w': shape is missing");
  EXPECT_EQ(header_refusal(R"({"w":{"dtype":"F32","shape":[1]}})"),
            "tensor 'w': data_offsets are missing");
  EXPECT_EQ(header_refusal(R"({"w":{"dtype":"F32","dtype":"U8"}})"),
            "tensor 'w': dtype stands twice");
  EXPECT_EQ(header_refusal(R"({"w":{"shape":[1],"shape":[1]}})"), "tensor 'w': shape stands twice");
  EXPECT_EQ(header_refusal(R"({"w":{"size":4}})"), "tensor 'w': unknown field 'size'");
  EXPECT_EQ(header_refusal(R"({"w":{"dtype":5}})"), "tensor 'w': dtype has no place for 5");
  EXPECT_EQ(header_refusal(R"({"w":{"shape":"x"}})"), "tensor 'w': shape has no place for 'x'");
  EXPECT_EQ(header_refusal(R"({"w":[1]})"), "tensor 'w': its entry is not an object, but an array");
  EXPECT_EQ(header_refusal(R"({"w":null})"), "tensor 'w': its entry is not an object, but null");
  EXPECT_EQ(header_refusal(R"({"__metadata__":[]})"),
            "__metadata__ is not an object, but an array");
  EXPECT_EQ(header_refusal(R"({"__metadata__":{"k":1}})"),
            "__metadata__: value of 'k' is not a string, but 1");
  EXPECT_EQ(header_refusal(R"({"__metadata__":{"k":{}}})"),
            "__metadata__: value of 'k' is not a string, but an object");
}

TEST_F(HostileFile, NotJson) {
  EXPECT_EQ(header_refusal("[]"), "not a safetensors file: its header does not start with '{'");
  EXPECT_EQ(header_refusal(" {}"), "not a safetensors file: its header does not start with '{'");
  for (const char* header : {"{", "{\"w\"", "{\"w\":", "{} x", "{}{}", "{\"w\":{}},", "{'w':1}"}) {
    const std::string message = header_refusal(header);
    EXPECT_TRUE(message.starts_with("header is not valid JSON at byte ") ||
                message.starts_with("tensor 'w': dtype is missing"))
        << header << ": " << message;
  }
  EXPECT_TRUE(
      header_refusal(std::string("{\"w\0\":1}", 8)).starts_with("header is not valid JSON"));
}

TEST_F(HostileFile, DeepNesting) {
  const std::string objects = [] {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "{\"a\":";
    return text;
  }();
  EXPECT_EQ(header_refusal(objects), "tensor 'a': unknown field 'a'");
  EXPECT_EQ(header_refusal("{\"w\":" + std::string(1'000'000, '[')),
            "tensor 'w': its entry is not an object, but an array");
  EXPECT_EQ(header_refusal("{\"w\":{\"shape\":" + std::string(1'000'000, '[')),
            "tensor 'w': shape has no place for an array");
}

TEST_F(HostileFile, AcceptedOddities) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"scalar\":" + entry("[]", "[0,4]") +
      ",\"none\":" + entry("[0]", "[4,4]") + ",\"\\u00e9\":" + entry("[1]", "[4,8]") + "}";
  for (const std::string padding : {"", "  ", "\n\t \r\n"}) {
    write_raw(path_, file_of(header + padding, 8));
    const SafetensorsFile file(path_);
    EXPECT_EQ(file.entries().size(), 3u);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.find("scalar")->shape, Shape{});
    EXPECT_EQ(file.find("none")->shape, Shape{0});
    EXPECT_NE(file.find("\xc3\xa9"), nullptr);
  }
}

TEST_F(HostileFile, LongNamesAreCutInMessages) {
  const std::string message =
      header_refusal("{\"" + std::string(100'000, 'n') + "\":" + entry("[3]", "[0,4]") + "}");
  EXPECT_LT(message.size(), 300u);
  EXPECT_TRUE(message.starts_with("tensor 'nnn")) << message;
}

TEST_F(HostileFile, NotAFile) {
  const auto in_folder = [this](const char* name) { return folder_.path() / name; };
  EXPECT_EQ(refusal_of(in_folder("missing"), 0), "cannot open: No such file or directory (ENOENT)");
  EXPECT_EQ(refusal_of(folder_.path(), 0), "is a folder, not a file");
  // Nobody writes to it: a reader that waits would wait for ever.
  ASSERT_EQ(::mkfifo(in_folder("fifo").c_str(), 0600), 0);
  EXPECT_EQ(refusal_of(in_folder("fifo"), 0), "is a FIFO, not a file");
  EXPECT_EQ(refusal_of("/dev/zero", 0), "is a device, not a file");
  std::filesystem::create_symlink("loop", in_folder("loop"));
  EXPECT_EQ(refusal_of(in_folder("loop"), 0),
            "cannot open: Too many levels of symbolic links (ELOOP)");
  std::filesystem::create_symlink("nowhere", in_folder("dangling"));
  EXPECT_EQ(refusal_of(in_folder("dangling"), 0),
            "cannot open: No such file or directory (ENOENT)");
  const int sock = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  UniqueFd owner(sock);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = in_folder("socket").string();
  ASSERT_LT(name.size(), sizeof address.sun_path);
  std::strcpy(address.sun_path, name.c_str());
  ASSERT_EQ(::bind(sock, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(refusal_of(name, 0), "is a socket, not a file");
}

TEST_F(HostileFile, LinkToAGoodFileIsRead) {
  write_raw(path_, file_of("{\"w\":" + entry("[1]", "[0,4]") + "}", 4));
  std::filesystem::create_symlink(path_, folder_.path() / "link");
  EXPECT_EQ(SafetensorsFile(folder_.path() / "link").entries().size(), 1u);
}

TEST_F(HostileFile, CutWhileOpen) {
  write_raw(path_, file_of("{\"w\":" + entry("[1]", "[0,4]") + "}", 4));
  const SafetensorsFile file(path_);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 2);
  std::vector<std::byte> out(4);
  EXPECT_NE(checkpoint_error_of([&] { file.read(*file.find("w"), out); }).find("became shorter"),
            std::string::npos);
}

}  // namespace
}  // namespace dtrain
