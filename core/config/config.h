// Recipes: YAML text to the protobuf of train.proto, strictly, and back.
//
// Every problem of a file is reported in one pass as FILE:LINE:COLUMN: path: what, with the value
// and the nearest valid name. YAML's traps are closed: duplicate keys, octal and sexagesimal
// numbers, quoted numbers, merge keys, tabs, second documents.
//
//   KindTable kinds;                                   // filled by the registries
//   Config config = load_config("c.yaml", {"optimizer.lr=0.05"}, kinds);
//   std::string text = to_yaml(config);                // every default spelled out
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/config/train.pb.h"

namespace dtrain {

// The messages that hold the keys of each kind: ("model", "mlp") -> Mlp. A program that adds a
// model or data set adds its message here.
class KindTable {
 public:
  // `prototype` must outlive the table (generated messages' default_instance() does).
  void add(const std::string& table, const std::string& kind,
           const google::protobuf::Message& prototype);
  const google::protobuf::Message* find(const std::string& table, const std::string& kind) const;
  std::vector<std::string> kinds(const std::string& table) const;

 private:
  std::map<std::string, std::map<std::string, const google::protobuf::Message*>> tables_;
};

// A recipe, with all defaults and derived values filled in.
struct Config {
  config::TrainConfig values;
  std::string source;  // path of the file, for messages
  std::string name;    // of the file, without folder and extension
  // Where each value that is not a default came from: "optimizer.lr" -> "c.yaml:12", "command line"
  // or, if it follows from other keys, "derived".
  std::map<std::string, std::string> origins;
  KindTable kinds;  // that it was read with
};

// Reads, overrides, checks and resolves. Throws ConfigError whose text lists every problem, one
// per line.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                   const KindTable& kinds);

// The same from text; `source` stands for the file in messages, `folder` resolves relative paths.
Config parse_config(const std::string& yaml, const std::string& source,
                    const std::filesystem::path& folder, const std::vector<std::string>& overrides,
                    const KindTable& kinds);

// YAML of the resolved recipe, in the order of the schema, each value's origin as a comment. It
// parses back to the same values.
std::string to_yaml(const Config& config, const KindTable& kinds);

// Digest of what decides the bits (see Note [Recipe and placement] in recipe.cpp): the same for
// any placement, output folder, logging or checkpointing.
std::string recipe_digest(const Config& config);

// Keys in which two resolved recipes' bit-deciding parts differ, as "optimizer.lr: 0.1 -> 0.01".
// A program that has kinds of its own gives its table; the kinds of dtrain are always known.
std::vector<std::string> recipe_differences(const config::TrainConfig& before,
                                            const config::TrainConfig& after,
                                            const KindTable& kinds = KindTable());

// Unpacks the options of a kind. Throws InternalError if they are of another type.
template <typename Message>
Message unpack(const google::protobuf::Any& options) {
  Message message;
  DTRAIN_CHECK(options.UnpackTo(&message), "options are {}, not {}", options.type_url(),
               Message::descriptor()->full_name());
  return message;
}

}  // namespace dtrain
