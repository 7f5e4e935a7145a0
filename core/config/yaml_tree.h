// YAML text as a tree that keeps what strictness needs: where each thing stands, whether it was in
// quotes, and every key, also those given twice.
//
// yaml-cpp splits the text (its events; its own nodes lose all of that). What it lets pass is
// caught here: see Note [What yaml-cpp lets pass] in yaml_tree.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/config/problems.h"

namespace dtrain::config_internal {

struct YamlEntry;

struct YamlNode {
  enum class Kind { empty, scalar, list, map };

  Kind kind = Kind::empty;
  Place place;
  std::string text;                // of a scalar
  bool in_quotes = false;          // of a scalar; also true for the block styles | and >
  std::vector<YamlNode> items;     // of a list
  std::vector<YamlEntry> entries;  // of a map, in the order of the text

  // The first entry of that key in a map, or null.
  const YamlNode* find(std::string_view key) const;
  YamlNode* find(std::string_view key);

  // "text 'abc'", "a list": for messages.
  std::string describe() const;
};

struct YamlEntry {
  std::string key;
  Place place;  // of the key
  YamlNode value;
};

// Parses one document. Adds to `problems` and returns nothing if the text is not one well-formed
// document; an empty document is an empty node. `override_index` is kept in every place.
std::optional<YamlNode> parse_yaml(std::string_view text, Problems& problems,
                                   int override_index = -1);

}  // namespace dtrain::config_internal
