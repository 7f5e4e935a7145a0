// The kinds of data sets that a recipe can name, and how each is made. A program adds its own in a
// few lines and gets the whole `dtrain` command line with it:
//
//   KindSchema schema("squares");
//   schema.integer("count", 100, "samples");
//   datasets.add(schema, [](const KindValues& values) {
//     return std::make_unique<Squares>(values.integer("count"));
//   });
//   std::unique_ptr<Dataset> train = datasets.create(recipe.data().train(), "data.train");
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/config/config.h"
#include "dtrain/core/config/kind_schema.h"
#include "dtrain/core/config/train.pb.h"
#include "dtrain/data/dataset.h"

namespace dtrain {

class DatasetRegistry {
 public:
  // Makes a data set of one kind from the recipe's keys. Throws ConfigError or DataError.
  using Factory = std::function<std::unique_ptr<Dataset>(const google::protobuf::Any& options)>;

  // A kind whose keys are a generated protobuf message. Replaces a kind of the same name.
  template <std::derived_from<google::protobuf::Message> Message, typename Make>
  void add(const std::string& kind, Make make) {
    add(kind, Message::default_instance(), [make](const google::protobuf::Any& options) {
      return std::unique_ptr<Dataset>(make(unpack<Message>(options)));
    });
  }
  // A kind whose keys are declared at run time.
  void add(const KindSchema& schema,
           std::function<std::unique_ptr<Dataset>(const KindValues& values)> make);

  // The data set of a section, with its `offset`, `size` and `repeat` applied. `where` is the
  // section's path, for messages. Unless `skip_bad`, a sample already known to be bad is an error.
  // Throws ConfigError: an unknown kind, or more samples than there are; DataError: bad files.
  std::unique_ptr<Dataset> create(const config::DataSource& source, std::string_view where = "data",
                                  bool skip_bad = false) const;

  // Adds the messages of all kinds as table "dataset".
  void register_kinds(KindTable& kinds) const;
  std::vector<std::string> kinds() const;

 private:
  struct Kind {
    const google::protobuf::Message* prototype;
    Factory make;
  };
  void add(const std::string& kind, const google::protobuf::Message& prototype, Factory make);

  std::map<std::string, Kind> kinds_;
};

// glyphs, mnist, cifar10, cifar100, csv, text, tokens and synthetic.
void register_builtin_datasets(DatasetRegistry& registry);

}  // namespace dtrain
