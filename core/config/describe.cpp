#include "dtrain/core/config/describe.h"

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/config/schema.h"

namespace dtrain {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using namespace config_internal;

std::string type_text(const FieldDescriptor& field) {
  if (is_amount(field)) return "samples or share";
  if (is_section(field)) return "section";
  const config::Key& key = key_of(field);
  const bool list = field.is_repeated();
  if (key.path() || key.path_from_working_directory()) return "path";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? "list of texts" : "text";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? "list of numbers" : "number";
    default:
      return list ? "list of whole numbers" : "whole number";
  }
}

std::string default_text(const FieldDescriptor& field) {
  const config::Key& key = key_of(field);
  if (key.required()) return "required";
  if (key.from_model()) return "the model's";
  if (field.is_repeated()) {
    if (key.list_default().empty()) return "`[]`";
    return fmt::format("`[{}]`", fmt::join(key.list_default(), ", "));
  }
  if (is_section(field) || !field.has_default_value()) return "";
  std::string text;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      text = std::to_string(field.default_value_int32());
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      text = std::to_string(field.default_value_int64());
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      text = std::to_string(field.default_value_uint64());
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      text = fmt::format("{}", field.default_value_double());
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      text = field.default_value_bool() ? "true" : "false";
      break;
    default:
      text = yaml_text(field.default_value_string());
  }
  if (key.auto_word() && text == "0") text = "auto";
  return fmt::format("`{}`", text);
}

std::string range_text(const FieldDescriptor& field) {
  const config::Key& key = key_of(field);
  if (!key.choice().empty()) return fmt::format("`{}`", fmt::join(key.choice(), "` `"));
  const char* above = key.exclusive_min() ? ">" : ">=";
  std::string text;
  if (key.has_min() && key.has_max()) {
    text = fmt::format("{} {}, <= {}", above, key.min(), key.max());
  } else if (key.has_min()) {
    text = fmt::format("{} {}", above, key.min());
  } else if (key.has_max()) {
    text = fmt::format("<= {}", key.max());
  }
  if (key.auto_word()) text += text.empty() ? "`auto`" : ", or `auto`";
  return text;
}

std::string meaning_text(const FieldDescriptor& field) {
  const config::Key& key = key_of(field);
  std::string text = key.doc();
  const auto add = [&](const std::string& more) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", more);
  };
  if (!key.only_for().empty()) {
    add(fmt::format("only for {}", fmt::join(key.only_for(), ", ")));
  }
  if (key.short_name()) add("`name` alone may stand for the section");
  if (key.placement()) add("placement");
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void table(const Descriptor& type, std::string& out) {
  out += "| key | type | default | values | meaning |\n|---|---|---|---|---|\n";
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (is_kind_options(field)) continue;
    const auto cell = [&](const std::string& text) {
      out += text.empty() ? std::string(" |") : fmt::format(" {} |", text);
    };
    out += "|";
    cell(fmt::format("`{}`", field.name()));
    cell(type_text(field));
    cell(default_text(field));
    cell(range_text(field));
    cell(meaning_text(field));
    out += "\n";
  }
  if (type.field_count() == 0) out += "| none | | | | |\n";
  out += "\n";
}

void describe(const Descriptor& type, const std::string& path, const KindTable& kinds,
              std::vector<const Descriptor*>& described, std::string& out) {
  const config::Section& section = section_of(type);
  out += path.empty() ? std::string("## Top level\n\n") : fmt::format("## `{}`\n\n", path);
  for (const Descriptor* before : described) {
    if (before == &type) {
      out += "The same keys and kinds as the section above.\n\n";
      return;
    }
  }
  described.push_back(&type);
  table(type, out);
  for (const std::string& kind : kinds.kinds(section.kinds())) {
    out += fmt::format("### `{}`: `{}: {}`\n\nBeside the keys above:\n\n", path, section.selector(),
                       kind);
    table(*kinds.find(section.kinds(), kind)->GetDescriptor(), out);
  }
  for (int i = 0; i < type.field_count(); ++i) {
    if (is_section(*type.field(i))) {
      describe(*type.field(i)->message_type(), join_path(path, type.field(i)->name()), kinds,
               described, out);
    }
  }
}

}  // namespace

std::string describe_schema(const KindTable& kinds) {
  std::string out;
  std::vector<const Descriptor*> described;
  describe(*config::TrainConfig::descriptor(), "", kinds, described, out);
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace dtrain
