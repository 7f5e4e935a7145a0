#include "dtrain/core/checkpoint/run_state.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <nlohmann/json.hpp>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

namespace pb = google::protobuf;

constexpr std::uint32_t newest_format = 1;
// Counts fit a double exactly, and sums of them never wrap.
constexpr std::int64_t largest_count = std::int64_t{1} << 53;

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// Whether `text` is JSON that is no deeper than an evaluation's record; deeper text could exhaust
// the stack of whoever prints it.
bool is_flat_json(const std::string& text) {
  constexpr int deepest = 8;
  bool too_deep = false;
  const auto document = nlohmann::json::parse(
      text,
      [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep |= depth > deepest;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  return !too_deep && !document.is_discarded();
}

void check_values(const pb::Message& message, const std::string& path, const std::string& prefix);

// Checks one value by its type; `index` is its place in a repeated field.
void check_value(const pb::Message& message, const pb::FieldDescriptor* field, int index,
                 const std::string& path, const std::string& name) {
  const pb::Reflection& reflection = *message.GetReflection();
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT64: {
      const std::int64_t value = many ? reflection.GetRepeatedInt64(message, field, index)
                                      : reflection.GetInt64(message, field);
      if (value < 0 || value > largest_count) {
        throw CheckpointError(path,
                              fmt::format("field {}: {} is not a count (0 to 2^53)", name, value));
      }
      break;
    }
    case pb::FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = many ? reflection.GetRepeatedDouble(message, field, index)
                                : reflection.GetDouble(message, field);
      if (!std::isfinite(value)) {
        throw CheckpointError(path, fmt::format("field {}: {} is not finite", name, value));
      }
      break;
    }
    case pb::FieldDescriptor::CPPTYPE_STRING:
      if (!is_utf8(many ? reflection.GetRepeatedString(message, field, index)
                        : reflection.GetString(message, field))) {
        throw CheckpointError(path, fmt::format("field {} is not valid UTF-8", name));
      }
      break;
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      check_values(many ? reflection.GetRepeatedMessage(message, field, index)
                        : reflection.GetMessage(message, field),
                   path, name + ".");
      break;
    default:
      break;
  }
}

// Checks every field that is set. `prefix`: "best." inside of a message.
void check_values(const pb::Message& message, const std::string& path, const std::string& prefix) {
  const pb::Reflection& reflection = *message.GetReflection();
  const pb::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    throw CheckpointError(
        path, fmt::format("unknown field {}{}: damaged, or written by a newer dtrain", prefix,
                          unknown.field(0).number()));
  }
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) check_value(message, field, i, path, prefix + field->name());
  }
}

void check_state(const checkpoint::RunState& state, const std::string& path) {
  if (state.format() != newest_format) {
    throw CheckpointError(path, fmt::format("field format: {} is not {}: written by another "
                                            "version of dtrain",
                                            state.format(), newest_format));
  }
  check_values(state, path, "");
  const pb::Descriptor& type = *checkpoint::RunState::descriptor();
  for (const char* name : {"step", "batch", "epoch", "batch_in_epoch", "samples_seen", "run_id"}) {
    if (!state.GetReflection()->HasField(state, type.FindFieldByName(name))) {
      throw CheckpointError(path, fmt::format("field {} is missing", name));
    }
  }
  if (state.step() > state.batch()) {
    throw CheckpointError(
        path, fmt::format("field step: {} is above batch, {}", state.step(), state.batch()));
  }
  if (state.batch_in_epoch() > state.batch()) {
    throw CheckpointError(path, fmt::format("field batch_in_epoch: {} is above batch, {}",
                                            state.batch_in_epoch(), state.batch()));
  }
  if (state.train_seconds() < 0) {
    throw CheckpointError(
        path, fmt::format("field train_seconds: {} is negative", state.train_seconds()));
  }
  if (state.has_validation() && !is_flat_json(state.validation())) {
    throw CheckpointError(path, "field validation is not JSON of an evaluation");
  }
  if (state.best().has_metrics() && !is_flat_json(state.best().metrics())) {
    throw CheckpointError(path, "field best.metrics is not JSON of an evaluation");
  }
}

}  // namespace

std::string serialize_run_state(const checkpoint::RunState& state, const std::string& path) {
  check_state(state, path);
  std::string bytes;
  {
    pb::io::StringOutputStream stream(&bytes);
    pb::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    state.SerializeToCodedStream(&coded);
  }
  return bytes;
}

checkpoint::RunState parse_run_state(std::string_view bytes, const std::string& path) {
  checkpoint::RunState state;
  if (bytes.size() > std::numeric_limits<int>::max() ||
      !state.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw CheckpointError(path, "not the state of a run: its bytes are damaged");
  }
  check_state(state, path);
  return state;
}

}  // namespace dtrain
