// The keys of a model or data set that a program adds, declared in a few lines and without protoc:
// the recipe's reader then treats them like those of dtrain's own kinds (types, ranges, defaults,
// unknown keys, `did you mean`).
//
//   KindSchema schema("two_towers");
//   schema.integer("width", 64, "units of the hidden layer", {.min = 1})
//       .number("margin", 0.5, "distance between the classes")
//       .text("pooling", "mean", "over a tower", {"mean", "max"})
//       .path("vocabulary", std::nullopt, "word list");     // no default: required
//   kinds.add("model", schema.name(), schema.prototype());  // the schema must outlive `kinds`
//   ...
//   KindValues values(recipe.model().options(), schema);
//   std::int64_t width = values.integer("width");
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/any.pb.h>
#include <google/protobuf/message.h>

namespace dtrain {

// Smallest and largest value of a number, inclusive.
struct Range {
  std::optional<double> min = std::nullopt;
  std::optional<double> max = std::nullopt;
};

class KindSchema {
 public:
  // Names of kinds and keys are lower-case words joined by underscores. Throws InternalError for
  // another name, a key declared twice, or a key declared after prototype() was asked for.
  // Copies are the same schema.
  explicit KindSchema(std::string name);

  const std::string& name() const;

  // A key without a default must be given. `doc` is what an error and the documentation say.
  KindSchema& integer(const std::string& key, std::optional<std::int64_t> value,
                      const std::string& doc, Range range = {});
  KindSchema& number(const std::string& key, std::optional<double> value, const std::string& doc,
                     Range range = {});
  KindSchema& flag(const std::string& key, std::optional<bool> value, const std::string& doc);
  KindSchema& text(const std::string& key, std::optional<std::string> value, const std::string& doc,
                   std::vector<std::string> choices = {});
  // A file: relative to the recipe's folder, or on the command line to the working directory.
  // Empty, as a default, means none.
  KindSchema& path(const std::string& key, std::optional<std::string> value,
                   const std::string& doc);
  // Lists; the range holds for each element. A list whose default is empty may be left out.
  KindSchema& integers(const std::string& key, std::optional<std::vector<std::int64_t>> value,
                       const std::string& doc, Range range = {});
  KindSchema& numbers(const std::string& key, std::optional<std::vector<double>> value,
                      const std::string& doc, Range range = {});
  // Texts have no default but the empty list.
  KindSchema& texts(const std::string& key, bool required, const std::string& doc);

  // The message type of these keys, for KindTable::add. Belongs to the schema.
  const google::protobuf::Message& prototype() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The values of one recipe's section. Throws InternalError for a key that the schema lacks, or has
// with another type.
class KindValues {
 public:
  KindValues(const google::protobuf::Any& options, const KindSchema& schema);

  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  bool flag(const std::string& key) const;
  std::string text(const std::string& key) const;  // also of paths
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;

 private:
  std::unique_ptr<google::protobuf::Message> values_;
};

}  // namespace dtrain
