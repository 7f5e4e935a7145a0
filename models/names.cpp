#include "dtrain/models/names.h"

#include <map>

namespace dtrain {

namespace {

template <typename Meaning>
Meaning look_up(const std::map<std::string, Meaning>& table, const std::string& name,
                const char* what) {
  const auto found = table.find(name);
  if (found != table.end()) return found->second;
  std::string names;
  for (const auto& [known, meaning] : table) names += (names.empty() ? "" : ", ") + known;
  throw ConfigError(fmt::format("{} '{}' is not known; use one of {}", what, name, names));
}

}  // namespace

Value (*activation_named(const std::string& name))(Pass&, const Value&) {
  static const std::map<std::string, Value (*)(Pass&, const Value&)> table = {
      {"relu", functions::relu},
      {"gelu", functions::gelu},
      {"sigmoid", functions::sigmoid},
      {"tanh", functions::tanh}};
  return look_up(table, name, "activation");
}

InitScheme init_named(const std::string& name) {
  static const std::map<std::string, InitScheme> table = {
      {"default", InitScheme::uniform_fan_in},
      {"zeros", InitScheme::zeros},
      {"ones", InitScheme::ones},
      {"kaiming_uniform", InitScheme::kaiming_uniform},
      {"kaiming_normal", InitScheme::kaiming_normal},
      {"xavier_uniform", InitScheme::xavier_uniform},
      {"xavier_normal", InitScheme::xavier_normal}};
  return look_up(table, name, "init");
}

}  // namespace dtrain
