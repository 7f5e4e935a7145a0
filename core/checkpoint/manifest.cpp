#include "dtrain/core/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

struct Line {
  std::string name;
  FileDigest file;
};

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos;
}

std::optional<Line> parse_line(std::string_view text) {
  const std::size_t first = text.find(' ');
  const std::size_t second = first == text.npos ? text.npos : text.find(' ', first + 1);
  if (second == text.npos) return std::nullopt;
  Line line;
  line.name = text.substr(0, first);
  const std::string_view size = text.substr(first + 1, second - first - 1);
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), line.file.size);
  if (error != std::errc() || end != size.data() + size.size()) return std::nullopt;
  line.file.digest = text.substr(second + 1);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (line.file.digest.size() != 32 || !std::ranges::all_of(line.file.digest, is_hex)) {
    return std::nullopt;
  }
  if (!is_plain_name(line.name)) return std::nullopt;
  return line;
}

std::string line_text(std::string_view name, const FileDigest& file) {
  return fmt::format("{} {} {}\n", name, file.size, file.digest);
}

FileDigest digest_of(std::string_view text) {
  return {text.size(), hash_hex(std::as_bytes(std::span(text)))};
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  std::string text;
  for (const auto& [name, file] : manifest) text += line_text(name, file);
  return text + line_text(manifest_name, digest_of(text));
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  Manifest manifest;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    ++number;
    const std::size_t end = text.find('\n', begin);
    if (end == text.npos) throw CheckpointError(path, fmt::format("cut in line {}", number));
    const std::optional<Line> line = parse_line(text.substr(begin, end - begin));
    if (!line) {
      throw CheckpointError(path, fmt::format("line {} is not 'name size digest'", number));
    }
    if (line->name == manifest_name) {
      if (end + 1 != text.size()) {
        throw CheckpointError(path, fmt::format("text after its last line, {}", number));
      }
      if (line->file != digest_of(text.substr(0, begin))) {
        throw CheckpointError(path, "changed after it was written: its last line does not match");
      }
      return manifest;
    }
    if (!manifest.emplace(line->name, line->file).second) {
      throw CheckpointError(path, fmt::format("line {}: {} stands twice", number, line->name));
    }
    begin = end + 1;
  }
  throw CheckpointError(path, fmt::format("cut after line {}: its last line is missing", number));
}

}  // namespace dtrain
