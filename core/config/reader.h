// A YAML tree to the message of train.proto, strictly: every key known, of the right type, in
// range. Fills in the defaults that stand in the schema; what depends on other keys is resolve.h's.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "dtrain/core/config/config.h"
#include "dtrain/core/config/problems.h"
#include "dtrain/core/config/yaml_tree.h"

namespace dtrain::config_internal {

// Where the keys that were given stand, sections included.
using Given = std::map<std::string, Place>;

// What relative paths are taken from.
struct Folders {
  std::filesystem::path file;     // folder of the recipe
  std::filesystem::path working;  // of the command line
};

// "folder/path" without "." and "..", or `path` if it is absolute.
std::string absolute_path(const std::filesystem::path& folder, const std::string& path);

// Adds what is wrong to `problems`; keys with problems keep their defaults.
void read_recipe(const YamlNode& root, const KindTable& kinds, const Folders& folders,
                 config::TrainConfig& recipe, Given& given, Problems& problems);

}  // namespace dtrain::config_internal
