// Where something stands in a recipe, and the list of all that is wrong with one.
//
// Reading a recipe never stops at the first mistake: each is added here, and `throw_if_any` raises
// one ConfigError with a line for each, in the order of the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::config_internal {

// A position in the file (line and column count from 1), or a whole override.
struct Place {
  int override_index = -1;  // of the command line's overrides; -1 in the file
  int line = 0;             // 0: the file as a whole
  int column = 0;

  bool on_command_line() const { return override_index >= 0; }
};

class Problems {
 public:
  Problems(std::string source, std::vector<std::string> overrides)
      : source_(std::move(source)), overrides_(std::move(overrides)) {}

  // `path` is the key's full path, or empty where the text as a whole is meant.
  void add(const Place& place, std::string_view path, std::string_view what);

  // True if something is wrong with `path`, with a part of it, or with what holds it. Checks that
  // compare several keys are left out then, because they would only report consequences.
  bool touch(std::string_view path) const;

  bool empty() const { return problems_.empty(); }
  std::size_t size() const { return problems_.size(); }

  // "c.yaml:12" or "command line".
  std::string origin(const Place& place) const;

  // Throws ConfigError.
  void throw_if_any() const;

 private:
  struct Problem {
    Place place;
    std::string path;
    std::string what;
  };

  std::string text(const Problem& problem) const;

  std::string source_;
  std::vector<std::string> overrides_;
  std::vector<Problem> problems_;
};

// Text of a recipe as it may stand in a message: control characters escaped, so that it can neither
// forge a line nor reach the terminal, and cut after about `limit` bytes.
std::string printable(std::string_view text, std::size_t limit);

// The same in quotes, for values.
std::string shown(std::string_view text);

// "a", "a or b", "a, b or c".
std::string join_or(const std::vector<std::string>& words);

}  // namespace dtrain::config_internal
