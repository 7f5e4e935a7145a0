#include "dtrain/core/config/config.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "dtrain/core/base/files.h"
#include "dtrain/core/config/overrides.h"
#include "dtrain/core/config/problems.h"
#include "dtrain/core/config/reader.h"
#include "dtrain/core/config/resolve.h"
#include "dtrain/core/config/yaml_tree.h"

namespace dtrain {

namespace {

namespace fs = std::filesystem;

// No recipe that a person writes comes near this.
constexpr std::uint64_t kMaxFileBytes = 1 << 20;

std::string name_of(const std::string& source) {
  const std::string stem = fs::path(source).stem().string();
  return stem.empty() || stem == "." || stem == ".." ? "run" : stem;
}

}  // namespace

void KindTable::add(const std::string& table, const std::string& kind,
                    const google::protobuf::Message& prototype) {
  DTRAIN_CHECK(tables_[table].emplace(kind, &prototype).second, "{} {} is registered twice", table,
               kind);
}

const google::protobuf::Message* KindTable::find(const std::string& table,
                                                 const std::string& kind) const {
  const auto kinds = tables_.find(table);
  if (kinds == tables_.end()) return nullptr;
  const auto found = kinds->second.find(kind);
  return found == kinds->second.end() ? nullptr : found->second;
}

std::vector<std::string> KindTable::kinds(const std::string& table) const {
  std::vector<std::string> names;
  const auto kinds = tables_.find(table);
  if (kinds == tables_.end()) return names;
  for (const auto& [name, prototype] : kinds->second) names.push_back(name);
  return names;
}

Config load_config(const fs::path& file, const std::vector<std::string>& overrides,
                   const KindTable& kinds) {
  const std::string source = file.string();
  std::error_code error;
  if (fs::is_directory(file, error)) {
    throw ConfigError(fmt::format("{}: is a folder; give the YAML file in it", source));
  }
  std::string text;
  try {
    text = read_file(file, kMaxFileBytes);
  } catch (const std::system_error& failure) {
    const int code = failure.code().value();
    throw ConfigError(fmt::format("{}: {}", source,
                                  code == EFBIG    ? "is larger than 1 MiB, which no recipe is"
                                  : code == EINVAL ? "is not a regular file"
                                                   : "cannot be read: " + errno_text(code)));
  }
  if (text.empty()) throw ConfigError(fmt::format("{}: the file is empty", source));
  return parse_config(text, source, fs::absolute(file).parent_path(), overrides, kinds);
}

Config parse_config(const std::string& yaml, const std::string& source, const fs::path& folder,
                    const std::vector<std::string>& overrides, const KindTable& kinds) {
  using namespace config_internal;
  Problems problems(source, overrides);
  Config config;
  config.source = source;
  config.name = name_of(source);
  config.kinds = kinds;

  std::optional<YamlNode> root = parse_yaml(yaml, problems);
  if (!root) problems.throw_if_any();
  apply_overrides(*root, overrides, problems);

  const Folders folders{fs::absolute(folder), fs::current_path()};
  Given given;
  // Text that is no recipe at all earns one problem, not one for each key that it lacks.
  if (root->kind != YamlNode::Kind::map) {
    read_recipe(*root, kinds, folders, config.values, given, problems);
    problems.throw_if_any();
  }
  read_recipe(*root, kinds, folders, config.values, given, problems);
  std::vector<std::string> derived;
  resolve(config.values, config.name, folders, kinds, given, derived, problems);
  problems.throw_if_any();

  for (const auto& [path, place] : given) config.origins[path] = problems.origin(place);
  for (const std::string& path : derived) config.origins[path] = "derived";
  return config;
}

}  // namespace dtrain
