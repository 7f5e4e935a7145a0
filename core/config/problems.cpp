#include "dtrain/core/config/problems.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"

namespace dtrain::config_internal {

namespace {

// A hostile or wholly mistaken file earns a readable message, not one line for each of its words.
constexpr std::size_t kMaxListed = 100;

bool holds(std::string_view section, std::string_view path) {
  return path == section ||
         (path.size() > section.size() && path.starts_with(section) && path[section.size()] == '.');
}

}  // namespace

void Problems::add(const Place& place, std::string_view path, std::string_view what) {
  problems_.push_back({place, std::string(path), std::string(what)});
}

bool Problems::touch(std::string_view path) const {
  return std::any_of(problems_.begin(), problems_.end(), [&](const Problem& problem) {
    return holds(path, problem.path) || holds(problem.path, path);
  });
}

std::string Problems::origin(const Place& place) const {
  if (place.on_command_line()) return "command line";
  return fmt::format("{}:{}", source_, place.line);
}

std::string Problems::text(const Problem& problem) const {
  const std::string source = printable(source_, 4096);
  const std::string path = printable(problem.path, 120);
  std::string where;
  if (problem.place.on_command_line()) {
    where = fmt::format("override {}",
                        shown(overrides_[static_cast<std::size_t>(problem.place.override_index)]));
  } else if (problem.place.line > 0) {
    where = fmt::format("{}:{}:{}", source, problem.place.line, problem.place.column);
  } else {
    where = source;
  }
  if (path.empty()) return fmt::format("{}: {}", where, problem.what);
  return fmt::format("{}: {}: {}", where, path, problem.what);
}

void Problems::throw_if_any() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.place.override_index, a.place.line, a.place.column) <
           std::tie(b.place.override_index, b.place.line, b.place.column);
  });
  std::string all;
  for (std::size_t i = 0; i < std::min(sorted.size(), kMaxListed); ++i) {
    if (i > 0) all += '\n';
    all += text(sorted[i]);
  }
  if (sorted.size() > kMaxListed) {
    all += fmt::format("\n{}: and {} more problems", source_, sorted.size() - kMaxListed);
  }
  throw ConfigError(all);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // Not in the middle of a UTF-8 sequence.
    if (out.size() >= limit && (byte & 0xC0) != 0x80) return out + "...";
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string shown(std::string_view text) {
  return fmt::format("'{}'", printable(text, 80));
}

std::string join_or(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

}  // namespace dtrain::config_internal
