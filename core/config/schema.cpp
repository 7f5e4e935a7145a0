#include "dtrain/core/config/schema.h"

#include <algorithm>

#include <fmt/format.h>

#include "dtrain/core/config/problems.h"
#include "dtrain/core/config/scalars.h"

namespace dtrain::config_internal {

using google::protobuf::Any;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::Reflection;

const config::Key& key_of(const FieldDescriptor& field) {
  return field.options().GetExtension(config::key);
}

const config::Section& section_of(const Descriptor& message) {
  return message.options().GetExtension(config::section);
}

bool is_kind_options(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type() == Any::descriptor();
}

bool is_amount(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type() == config::Amount::descriptor();
}

bool is_section(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !is_kind_options(field) &&
         !is_amount(field);
}

std::string join_path(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

namespace {

const FieldDescriptor* options_field(const Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (is_kind_options(*message.field(i))) return message.field(i);
  }
  return nullptr;
}

// An empty message of the type that `options` hold, or null.
std::unique_ptr<Message> new_options(const Any& options, const std::string& table,
                                     const std::string& kind, const KindTable& kinds) {
  std::string type;
  if (!Any::ParseAnyTypeUrl(options.type_url(), &type)) return nullptr;
  const Message* prototype = kinds.find(table, kind);
  if (!prototype || prototype->GetDescriptor()->full_name() != type) {
    const Descriptor* known = DescriptorPool::generated_pool()->FindMessageTypeByName(type);
    if (!known) return nullptr;
    prototype = MessageFactory::generated_factory()->GetPrototype(known);
  }
  return std::unique_ptr<Message>(prototype->New());
}

}  // namespace

void OpenSection::close() {
  if (!options) return;
  const FieldDescriptor* field = options_field(*message->GetDescriptor());
  auto* any = static_cast<Any*>(message->GetReflection()->MutableMessage(message, field));
  DTRAIN_CHECK(any->PackFrom(*options), "options of {} do not serialize",
               message->GetDescriptor()->full_name());
}

OpenSection open_section(Message& message, const KindTable& kinds) {
  OpenSection open{&message, nullptr};
  const Descriptor& type = *message.GetDescriptor();
  const config::Section& section = section_of(type);
  const FieldDescriptor* field = options_field(type);
  if (section.selector().empty() || !field) return open;
  const Reflection& reflection = *message.GetReflection();
  if (!reflection.HasField(message, field)) return open;
  const auto& any = static_cast<const Any&>(reflection.GetMessage(message, field));
  open.options = new_options(any, section.kinds(), selected_name(message), kinds);
  if (open.options && !any.UnpackTo(open.options.get())) open.options = nullptr;
  return open;
}

std::string selected_name(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  const std::string& selector = section_of(type).selector();
  const FieldDescriptor* field = type.FindFieldByName(selector.empty() ? "name" : selector);
  if (!field || field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    return "";
  }
  return message.GetReflection()->GetString(message, field);
}

bool applies(const FieldDescriptor& field, const Message& message) {
  const auto& names = key_of(field).only_for();
  return names.empty() ||
         std::find(names.begin(), names.end(), selected_name(message)) != names.end();
}

namespace {

void set_default(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, field.default_value_int32());
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, &field, field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, field.default_value_uint32());
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field, field.default_value_double());
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, field.default_value_bool());
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field, field.default_value_string());
    default:
      DTRAIN_CHECK(false, "field {} has a type that recipes do not use", field.full_name());
  }
}

void add_defaults_to_list(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  for (const double value : key_of(field).list_default()) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.AddInt32(&message, &field, static_cast<std::int32_t>(value));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.AddInt64(&message, &field, static_cast<std::int64_t>(value));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.AddDouble(&message, &field, value);
        break;
      default:
        DTRAIN_CHECK(false, "list {} cannot have a default", field.full_name());
    }
  }
}

}  // namespace

void spell_out_defaults(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!applies(field, message)) continue;
    if (is_section(field)) {
      const bool given = reflection.HasField(message, &field);
      const bool has_kinds = !section_of(*field.message_type()).selector().empty();
      if (given || !has_kinds) spell_out_defaults(*reflection.MutableMessage(&message, &field));
    } else if (field.is_repeated()) {
      if (reflection.FieldSize(message, &field) == 0) add_defaults_to_list(message, field);
    } else if (field.has_default_value() && !reflection.HasField(message, &field)) {
      set_default(message, field);
    }
  }
}

void visit_keys(const Message& message, const std::string& path, const KindTable& kinds,
                const KeyVisitor& visit) {
  const Reflection& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (is_kind_options(field)) {
      const std::unique_ptr<Message> copy(message.New());
      copy->CopyFrom(message);
      const OpenSection open = open_section(*copy, kinds);
      if (open.options) visit_keys(*open.options, path, kinds, visit);
      continue;
    }
    if (!field.is_repeated() && !reflection.HasField(message, &field)) continue;
    const std::string key = join_path(path, field.name());
    if (is_section(field)) {
      visit_keys(reflection.GetMessage(message, &field), key, kinds, visit);
    } else if (applies(field, message)) {
      visit(key, message, field);
    }
  }
}

namespace {

std::string amount_text(const config::Amount& amount) {
  if (amount.has_percent()) return real_text(amount.percent()) + "%";
  return std::to_string(amount.samples());
}

std::string single_text(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (is_amount(field)) {
    return amount_text(static_cast<const config::Amount&>(reflection.GetMessage(message, &field)));
  }
  const bool auto_word = key_of(field).auto_word();
  const auto whole = [&](auto value) {
    return auto_word && value == 0 ? std::string("auto") : std::to_string(value);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return whole(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return whole(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return whole(reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return whole(reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return real_text(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return yaml_text(reflection.GetString(message, &field));
    default:
      DTRAIN_CHECK(false, "field {} has a type that recipes do not use", field.full_name());
  }
  return "";
}

std::string element_text(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return std::to_string(reflection.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return std::to_string(reflection.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return real_text(reflection.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return yaml_text(reflection.GetRepeatedString(message, &field, index));
    default:
      DTRAIN_CHECK(false, "list {} has a type that recipes do not use", field.full_name());
  }
  return "";
}

}  // namespace

std::string value_text(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return single_text(message, field);
  std::string out = "[";
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    if (i > 0) out += ", ";
    out += element_text(message, field, i);
  }
  return out + "]";
}

std::string yaml_text(std::string_view text) {
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/' || c == '.' || c == '-';
  };
  const bool plain = !text.empty() && text[0] != '-' && text[0] != '.' &&
                     !(text[0] >= '0' && text[0] <= '9') &&
                     std::all_of(text.begin(), text.end(), harmless) && text != "null" &&
                     text != "Null" && text != "NULL";
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace dtrain::config_internal
