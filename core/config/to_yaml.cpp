// A resolved recipe as YAML.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/config/config.h"
#include "dtrain/core/config/schema.h"

namespace dtrain {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// A control character in a file name must not end the comment.
std::string comment_text(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

}  // namespace

std::string to_yaml(const Config& config, const KindTable& kinds) {
  using namespace config_internal;
  std::string out = comment_text(fmt::format(
      "# {}, resolved: every value, and where those that are no default come from", config.source));
  out += '\n';
  std::vector<std::string> open;  // the section whose keys are being written
  visit_keys(config.values, "", kinds,
             [&](const std::string& path, const Message& message, const FieldDescriptor& field) {
               std::vector<std::string> parts = parts_of(path);
               const std::string key = parts.back();
               parts.pop_back();
               std::size_t same = 0;
               while (same < open.size() && same < parts.size() && open[same] == parts[same]) {
                 ++same;
               }
               for (std::size_t i = same; i < parts.size(); ++i) {
                 out += fmt::format("{}{}:\n", std::string(2 * i, ' '), parts[i]);
               }
               open = parts;
               out += fmt::format("{}{}: {}", std::string(2 * parts.size(), ' '), key,
                                  value_text(message, field));
               const auto origin = config.origins.find(path);
               if (origin != config.origins.end()) {
                 out += comment_text(fmt::format("  # {}", origin->second));
               }
               out += '\n';
             });
  return out;
}

}  // namespace dtrain
