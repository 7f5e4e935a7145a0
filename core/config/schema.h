// The schema of a recipe as its descriptors tell it: keys, kinds, options, defaults. Everything
// that reads, writes, compares or describes recipes walks the schema through these functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "dtrain/core/config/config.h"

namespace dtrain::config_internal {

// The options beside a field or message; their defaults where it has none.
const config::Key& key_of(const google::protobuf::FieldDescriptor& field);
const config::Section& section_of(const google::protobuf::Descriptor& message);

// Kinds of fields.
bool is_kind_options(const google::protobuf::FieldDescriptor& field);  // Any: not a key itself
bool is_amount(const google::protobuf::FieldDescriptor& field);
bool is_section(const google::protobuf::FieldDescriptor& field);  // a message whose keys nest

// "model" + "name" = "model.name".
std::string join_path(std::string_view path, std::string_view name);

// A section with the keys of its kind unpacked: Model + Mlp.
struct OpenSection {
  google::protobuf::Message* message = nullptr;
  std::unique_ptr<google::protobuf::Message> options;  // null if it has no kinds, or no kind yet

  // Packs the options back into the message.
  void close();
};

// `kinds` may lack a generated message: the program's own descriptors are asked too. Options of a
// type that neither knows stay packed.
OpenSection open_section(google::protobuf::Message& message, const KindTable& kinds);

// Value of the field that selects the kind (`name`, `kind`), or of a field called `name`; empty if
// there is neither.
std::string selected_name(const google::protobuf::Message& message);

// False if the section's `name` makes the key meaningless.
bool applies(const google::protobuf::FieldDescriptor& field,
             const google::protobuf::Message& message);

// Sets each key that has a default, is not given and applies. Recurses into sections, except those
// that may be left out (kind sections).
void spell_out_defaults(google::protobuf::Message& message);

// Calls `visit(path, message, field)` for every set key of the recipe that is not a section, in the
// order of the schema, keys of a kind beside its selector. Lists count as set.
using KeyVisitor =
    std::function<void(const std::string& path, const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field)>;
void visit_keys(const google::protobuf::Message& message, const std::string& path,
                const KindTable& kinds, const KeyVisitor& visit);

// Value of a key as YAML: 0.001, [1, 2], "a b".
std::string value_text(const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field);

// Text as a YAML scalar, in quotes where it needs them.
std::string yaml_text(std::string_view text);

}  // namespace dtrain::config_internal
