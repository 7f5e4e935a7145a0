#include "dtrain/core/config/kind_schema.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/config/options.pb.h"

namespace dtrain {

using google::protobuf::DescriptorPool;
using google::protobuf::DynamicMessageFactory;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::Message;

namespace {

void check_name(const std::string& name) {
  const bool fits = !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                    });
  DTRAIN_CHECK(fits, "'{}' is not a lower-case name such as two_towers", name);
}

}  // namespace

// Note [Kinds at run time]
//
// A schema is a protobuf message type that is built while the program runs: its keys are fields,
// and ranges, defaults and documentation are the same options that train.proto gives to its own.
// So everything that walks a recipe (reading, writing, comparing, describing) needs no second path.
// The pool is the schema's own: two programs' kinds of the same name never meet.
struct KindSchema::State {
  std::string name;
  FileDescriptorProto file;
  std::once_flag built;
  DescriptorPool pool;
  DynamicMessageFactory factory{&pool};
  const Message* prototype = nullptr;  // the factory's

  FieldDescriptorProto& add(const std::string& key, FieldDescriptorProto::Type type, bool list,
                            bool required, const std::string& doc, const Range& range) {
    check_name(key);
    DTRAIN_CHECK(!prototype, "key {} of {} is declared after prototype()", key, name);
    auto& message = *file.mutable_message_type(0);
    for (const FieldDescriptorProto& field : message.field()) {
      DTRAIN_CHECK(field.name() != key, "key {} of {} is declared twice", key, name);
    }
    FieldDescriptorProto& field = *message.add_field();
    field.set_name(key);
    field.set_number(message.field_size());
    field.set_type(type);
    field.set_label(list ? FieldDescriptorProto::LABEL_REPEATED
                         : FieldDescriptorProto::LABEL_OPTIONAL);
    config::Key& options = *field.mutable_options()->MutableExtension(config::key);
    options.set_doc(doc);
    if (required) options.set_required(true);
    if (range.min) options.set_min(*range.min);
    if (range.max) options.set_max(*range.max);
    return field;
  }

  static config::Key& options_of(FieldDescriptorProto& field) {
    return *field.mutable_options()->MutableExtension(config::key);
  }

  void build() {
    const google::protobuf::FileDescriptor* built_file = pool.BuildFile(file);
    DTRAIN_CHECK(built_file, "the keys of {} make no message type", name);
    prototype = factory.GetPrototype(built_file->message_type(0));
  }
};

KindSchema::KindSchema(std::string name) : state_(std::make_shared<State>()) {
  check_name(name);
  state_->file.set_name("dtrain/kinds/" + name);
  state_->file.set_package("dtrain.kinds");
  state_->file.set_syntax("proto2");
  state_->file.add_message_type()->set_name(name);
  state_->name = std::move(name);
}

const std::string& KindSchema::name() const {
  return state_->name;
}

KindSchema& KindSchema::integer(const std::string& key, std::optional<std::int64_t> value,
                                const std::string& doc, Range range) {
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_INT64, false, !value, doc, range);
  if (value) field.set_default_value(std::to_string(*value));
  return *this;
}

KindSchema& KindSchema::number(const std::string& key, std::optional<double> value,
                               const std::string& doc, Range range) {
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_DOUBLE, false, !value, doc, range);
  if (value) field.set_default_value(fmt::format("{}", *value));
  return *this;
}

KindSchema& KindSchema::flag(const std::string& key, std::optional<bool> value,
                             const std::string& doc) {
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_BOOL, false, !value, doc, {});
  if (value) field.set_default_value(*value ? "true" : "false");
  return *this;
}

KindSchema& KindSchema::text(const std::string& key, std::optional<std::string> value,
                             const std::string& doc, std::vector<std::string> choices) {
  DTRAIN_CHECK(!value || choices.empty() ||
                   std::find(choices.begin(), choices.end(), *value) != choices.end(),
               "the default of {} is not among its choices", key);
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_STRING, false, !value, doc, {});
  for (std::string& choice : choices) State::options_of(field).add_choice(std::move(choice));
  if (value) field.set_default_value(*value);
  return *this;
}

KindSchema& KindSchema::path(const std::string& key, std::optional<std::string> value,
                             const std::string& doc) {
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_STRING, false, !value, doc, {});
  State::options_of(field).set_path(true);
  if (value) field.set_default_value(*value);
  return *this;
}

KindSchema& KindSchema::integers(const std::string& key,
                                 std::optional<std::vector<std::int64_t>> value,
                                 const std::string& doc, Range range) {
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_INT64, true, !value, doc, range);
  for (const std::int64_t element : value.value_or(std::vector<std::int64_t>())) {
    State::options_of(field).add_list_default(static_cast<double>(element));
  }
  return *this;
}

KindSchema& KindSchema::numbers(const std::string& key, std::optional<std::vector<double>> value,
                                const std::string& doc, Range range) {
  auto& field = state_->add(key, FieldDescriptorProto::TYPE_DOUBLE, true, !value, doc, range);
  for (const double element : value.value_or(std::vector<double>())) {
    State::options_of(field).add_list_default(element);
  }
  return *this;
}

KindSchema& KindSchema::texts(const std::string& key, bool required, const std::string& doc) {
  state_->add(key, FieldDescriptorProto::TYPE_STRING, true, required, doc, {});
  return *this;
}

const Message& KindSchema::prototype() const {
  std::call_once(state_->built, [&] { state_->build(); });
  return *state_->prototype;
}

namespace {

const FieldDescriptor* find(const Message& values, const std::string& key,
                            FieldDescriptor::CppType type, bool list) {
  const FieldDescriptor* field = values.GetDescriptor()->FindFieldByName(key);
  DTRAIN_CHECK(field, "{} has no key {}", values.GetDescriptor()->name(), key);
  DTRAIN_CHECK(field->cpp_type() == type && field->is_repeated() == list,
               "key {} of {} has another type", key, values.GetDescriptor()->name());
  return field;
}

}  // namespace

KindValues::KindValues(const google::protobuf::Any& options, const KindSchema& schema)
    : values_(schema.prototype().New()) {
  DTRAIN_CHECK(options.UnpackTo(values_.get()), "options are {}, not those of {}",
               options.type_url(), schema.name());
}

std::int64_t KindValues::integer(const std::string& key) const {
  return values_->GetReflection()->GetInt64(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_INT64, false));
}

double KindValues::number(const std::string& key) const {
  return values_->GetReflection()->GetDouble(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_DOUBLE, false));
}

bool KindValues::flag(const std::string& key) const {
  return values_->GetReflection()->GetBool(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_BOOL, false));
}

std::string KindValues::text(const std::string& key) const {
  return values_->GetReflection()->GetString(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_STRING, false));
}

std::vector<std::int64_t> KindValues::integers(const std::string& key) const {
  const auto elements = values_->GetReflection()->GetRepeatedFieldRef<std::int64_t>(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_INT64, true));
  return {elements.begin(), elements.end()};
}

std::vector<double> KindValues::numbers(const std::string& key) const {
  const auto elements = values_->GetReflection()->GetRepeatedFieldRef<double>(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_DOUBLE, true));
  return {elements.begin(), elements.end()};
}

std::vector<std::string> KindValues::texts(const std::string& key) const {
  const auto elements = values_->GetReflection()->GetRepeatedFieldRef<std::string>(
      *values_, find(*values_, key, FieldDescriptor::CPPTYPE_STRING, true));
  return {elements.begin(), elements.end()};
}

}  // namespace dtrain
