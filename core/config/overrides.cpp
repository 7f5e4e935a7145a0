#include "dtrain/core/config/overrides.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dtrain/core/config/schema.h"
#include "dtrain/core/config/train.pb.h"

namespace dtrain::config_internal {

namespace {

struct Override {
  std::vector<std::string> path;
  std::string name;  // the path as text
  YamlNode value;
  bool take_back = false;
};

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::optional<Override> parse(const std::string& text, int index, Problems& problems) {
  const Place place{index, 0, 0};
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) {
    problems.add(place, "", "expected KEY=VALUE, as in optimizer.lr=0.05");
    return std::nullopt;
  }
  Override result;
  result.name = text.substr(0, equals);
  result.path = split(result.name);
  if (std::any_of(result.path.begin(), result.path.end(),
                  [](const std::string& part) { return part.empty(); })) {
    problems.add(place, "",
                 fmt::format("{} is not a key such as optimizer.lr", shown(result.name)));
    return std::nullopt;
  }
  if (result.path.size() > 16) {
    problems.add(place, "", "the key has too many parts");
    return std::nullopt;
  }
  const std::string value = text.substr(equals + 1);
  std::optional<YamlNode> node = parse_yaml(value, problems, index);
  if (!node) return std::nullopt;
  result.value = std::move(*node);
  result.value.place = {index, 1, 1};  // an empty text has none
  result.take_back = result.value.kind == YamlNode::Kind::empty && !trimmed(value).empty() &&
                     trimmed(value)[0] != '#';
  return result;
}

// `optimizer: adam` stands for `optimizer: {name: adam}`.
void expand_short_name(YamlNode& node, const std::string& key) {
  const auto* field = config::TrainConfig::descriptor()->FindFieldByName(key);
  if (node.kind != YamlNode::Kind::scalar || !field || !key_of(*field).short_name()) return;
  YamlNode name = std::move(node);
  YamlNode section;
  section.kind = YamlNode::Kind::map;
  section.place = name.place;
  section.entries.push_back({"name", name.place, std::move(name)});
  node = std::move(section);
}

void apply(YamlNode& root, const Override& change, Problems& problems) {
  YamlNode* node = &root;
  for (std::size_t depth = 0; depth < change.path.size(); ++depth) {
    const std::string& part = change.path[depth];
    const Place& place = change.value.place;
    const bool last = depth + 1 == change.path.size();
    if (node->kind == YamlNode::Kind::empty) {
      // The file's own problem, reported with the file.
      if (!node->place.on_command_line() && node != &root) return;
      node->kind = YamlNode::Kind::map;
      node->place = place;
    }
    if (node->kind != YamlNode::Kind::map) {
      problems.add(
          place, change.name,
          fmt::format("{} is {}, not a section; give its whole value",
                      shown(fmt::format(
                          "{}", fmt::join(change.path.begin(),
                                          change.path.begin() + static_cast<long>(depth), "."))),
                      node->describe()));
      return;
    }
    if (last && change.take_back) {
      std::erase_if(node->entries, [&](const YamlEntry& entry) { return entry.key == part; });
      return;
    }
    YamlNode* next = node->find(part);
    if (!next) {
      node->entries.push_back({part, place, {}});
      next = &node->entries.back().value;
      next->place = place;
    }
    if (last) {
      *next = change.value;
      for (YamlEntry& entry : node->entries) {
        if (&entry.value == next) entry.place = place;
      }
    } else if (depth == 0) {
      expand_short_name(*next, part);
    }
    node = next;
  }
}

}  // namespace

void apply_overrides(YamlNode& root, const std::vector<std::string>& overrides,
                     Problems& problems) {
  std::vector<Override> applied;
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    std::optional<Override> change = parse(overrides[i], static_cast<int>(i), problems);
    if (!change) continue;
    for (const Override& before : applied) {
      if (before.name.starts_with(change->name + ".")) {
        problems.add(change->value.place, change->name,
                     fmt::format("replaces the whole section and throws away {}; put it first",
                                 shown(before.name)));
      }
    }
    apply(root, *change, problems);
    applied.push_back(std::move(*change));
  }
}

}  // namespace dtrain::config_internal
