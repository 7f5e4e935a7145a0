// What of a configuration decides bits: its digest, and how two of them differ.
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/base/hash.h"
#include "dtrain/core/config/config.h"
#include "dtrain/core/config/schema.h"

namespace dtrain {

// Note [Recipe and placement]
//
// The recipe decides every bit of the trained weights; the placement does not change one of them,
// so a run may go on with another placement, but not with another recipe. In the schema,
// `placement` marks keys and sections of the placement; all others belong to the recipe, so that a
// key that nobody thought about is compared rather than ignored. Three more rules:
//   - a path belongs to neither: data sets are compared by content. Whether one is given counts;
//   - a key that the chosen optimizer, schedule or loss does not use does not count;
//   - when evaluations are made decides bits only through early stopping.

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Values = std::vector<std::pair<std::string, std::string>>;

bool in_placement(const std::string& path, const config::TrainConfig& recipe) {
  if (path.starts_with("validation.") && recipe.train().early_stop_patience() > 0) return false;
  const std::string section = path.substr(0, path.find('.'));
  const FieldDescriptor* field = config::TrainConfig::descriptor()->FindFieldByName(section);
  return field && config_internal::key_of(*field).placement();
}

Values recipe_values(const config::TrainConfig& recipe, const KindTable& kinds) {
  using namespace config_internal;
  Values values;
  visit_keys(recipe, "", kinds,
             [&](const std::string& path, const Message& message, const FieldDescriptor& field) {
               if (in_placement(path, recipe) || key_of(field).placement()) return;
               std::string text = value_text(message, field);
               if (key_of(field).path()) text = text == "\"\"" ? "none" : "given";
               values.emplace_back(path, std::move(text));
             });
  // Options of a kind that nobody can read still count, byte for byte.
  const auto add_unknown = [&](const std::string& path, const Message& section,
                               const google::protobuf::Any& options) {
    const std::unique_ptr<Message> copy(section.New());
    copy->CopyFrom(section);
    if (!options.type_url().empty() && !open_section(*copy, kinds).options) {
      values.emplace_back(path + ".options", hash_hex(std::as_bytes(std::span(options.value()))));
    }
  };
  add_unknown("model", recipe.model(), recipe.model().options());
  add_unknown("data.train", recipe.data().train(), recipe.data().train().options());
  add_unknown("data.validation", recipe.data().validation(), recipe.data().validation().options());
  return values;
}

}  // namespace

std::string recipe_digest(const Config& config) {
  Hasher hasher;
  for (const auto& [path, text] : recipe_values(config.values, config.kinds)) {
    hasher.add(path);
    hasher.add(text);
  }
  return hasher.hex();
}

std::vector<std::string> recipe_differences(const config::TrainConfig& before,
                                            const config::TrainConfig& after,
                                            const KindTable& kinds) {
  constexpr const char* kNone = "(not given)";
  const Values old_values = recipe_values(before, kinds);
  const Values new_values = recipe_values(after, kinds);
  std::map<std::string, std::string> old_by_path(old_values.begin(), old_values.end());
  std::vector<std::string> differences;
  for (const auto& [path, text] : new_values) {
    const auto found = old_by_path.find(path);
    const std::string old_text = found == old_by_path.end() ? kNone : found->second;
    if (old_text != text) differences.push_back(fmt::format("{}: {} -> {}", path, old_text, text));
    if (found != old_by_path.end()) old_by_path.erase(found);
  }
  for (const auto& [path, text] : old_values) {
    if (old_by_path.count(path)) {
      differences.push_back(fmt::format("{}: {} -> {}", path, text, kNone));
    }
  }
  return differences;
}

}  // namespace dtrain
